package symbols

import (
	"testing"

	"kprobe/internal/fixture"
	"kprobe/symbols/unwind"
)

// Where the return address is, is what the table of all rows says, whether a file has a header with the places of the
// unwinding information or not. Code without such information has none.
func TestReturnSlot(t *testing.T) {
	for _, flags := range [][]string{{"-O2"}, {"-O0"}, {"-O2", "-static"}, {"-O2", "-Wl,--no-eh-frame-hdr"}, {"-O2", "-s", "-no-pie"}} {
		f, err := OpenFile(fixture.Build(t, "survey_apart.c", flags...))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for fn := range f.EachFunc() {
			for v := fn.Start; v < min(fn.End, fn.Start+64); v++ {
				row, ok := f.frameAt(v)
				ra := row.Regs[unwind.PC]
				ok = ok && row.CFA.Kind == unwind.InRegister && ra.Kind == unwind.AtCFA && ra.Off == -8
				s, sok := f.ReturnSlot(v)
				if sok != ok || ok && (s.Base != row.CFA.Reg || s.Off != row.CFA.Off || v < s.Start || v >= s.End) {
					t.Fatalf("%v: %v: %+v, %v; the table has %+v, %v", flags, v, s, sok, row.CFA, ok)
				}
				if ok {
					n++
				}
			}
		}
		if n < 100 {
			t.Errorf("%v: only %d addresses have one", flags, n)
		}
		if s, ok := f.ReturnSlot(0); ok {
			t.Errorf("%v: nothing has %+v", flags, s)
		}
	}
}
