package engine

import (
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/detour"
)

// TestEffects looks at the detours of an entry that is counted, and of one that is recorded. At the beginning nothing has
// been done, at some instructions everything has, and at none both: a hit is an effect on each way.
func TestEffects(t *testing.T) {
	for _, counted := range []bool{true, false} {
		def, err := fetch.Parse("p f a=%di b=+8(%si)")
		if err != nil {
			t.Fatal(err)
		}
		prog, err := def.Compile(nil)
		if err != nil {
			t.Fatal(err)
		}
		const base = 0x10000
		p := &detour.Params{RingSize: 1 << 16, AreaShift: 16}
		d, err := detour.Build(base, p, []detour.Probe{{ID: 1, Program: prog, CountOnly: counted}}, func(c *asm.Code) error {
			c.Ret()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		e := findEffects(d, d.Code, int(d.Copy()-base), 0)
		undone, open, done := 0, 0, 0
		for off := range d.Code {
			switch {
			case e.undone.has(off) && e.done.has(off):
				t.Errorf("counted %v: at +%#x nothing is done, and everything", counted, off)
			case e.undone.has(off):
				undone++
			case e.done.has(off):
				done++
			case d.Writing(base+uint64(off)) == detour.Open && e.open.has(off):
				open++
			}
		}
		if !e.undone.has(0) || e.done.has(0) || undone < 8 || done < 5 || (open > 0) == counted {
			t.Errorf("counted %v: nothing is done at %d instructions, everything at %d, a record is open at %d", counted, undone, done, open)
		}
	}
}
