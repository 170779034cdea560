package probe

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// modes are the ways of probe_calls to run, with what is probed in each and
// how often that is reached in count rounds of one thread.
var modes = []struct {
	mode string
	defs []string
	hits map[string]func(count int) int
}{
	{"work", []string{"p:in work a=$arg1 s=+0($arg2):string", "r:out work v=$retval a=$arg1"},
		map[string]func(int) int{"in": id, "out": id}},
	{"many", []string{"p:in many a=$arg1 g=$arg7 h=$arg8", "r:out many h=$arg8 v=$retval:s64"},
		map[string]func(int) int{"in": id, "out": id}},
	{"real", []string{"p:in real x=%xmm0:f64 y=%xmm1:f32", "r:out real v=%xmm0:f64"},
		map[string]func(int) int{"in": id, "out": id}},
	{"red", []string{"p:in red_zone a=$arg1:s64"}, map[string]func(int) int{"in": id}},
	{"recurse", []string{"p:in recurse n=$arg1", "r100:out recurse n=$arg1 v=$retval"},
		map[string]func(int) int{"in": recursed, "out": recursed}},
	{"tail", []string{"r:a tail_a n=$arg1 v=$retval", "r:b tail_b n=$arg1 v=$retval"},
		map[string]func(int) int{"a": id, "b": id}},
	{"jump", []string{"p:deep deep", "r:out jumper v=$retval", "r64:never deep"},
		map[string]func(int) int{"out": id, "never": func(int) int { return 0 }}},
	{"switch", []string{"r:out switcher v=$retval:s64"}, map[string]func(int) int{"out": id}},
	{"strings", []string{"p:in libc:strlen s=+0($arg1):string", "p:out strings s=+0(%di):string"},
		map[string]func(int) int{"out": id}},
}

func id(n int) int { return n }

func recursed(count int) int {
	n := 0
	for i := range count {
		n += i%6 + 1
	}
	return n
}

func TestCountsAndResults(t *testing.T) {
	prog := callsFixture(t)
	const count = 500
	for _, threads := range []int{1, 4} {
		for i := range 2 * len(modes) {
			m, o := modes[i/2], Options{MaxActive: 200, NoOptimize: i%2 == 1}
			t.Run(fmt.Sprintf("%s-%d-optimize-%v", m.mode, threads, !o.NoOptimize), func(t *testing.T) {
				args := []string{m.mode, strconv.Itoa(count), strconv.Itoa(threads)}
				want := plain(t, prog, args...)
				sub := startSubject(t, prog, args...)
				l := attach(t, sub.pid(), o, m.defs...)
				if got := sub.work(); got != want {
					t.Errorf("probed, the program printed %q, otherwise %q", got, want)
				}
				l.finish(sub.pid())
				sub.end()
				for name, f := range m.hits {
					st := l.stat(name)
					if want := uint64(f(count) * threads); st.Hits != want || st.Recorded != want {
						t.Errorf("%s: %d hits, %d recorded, want %d", name, st.Hits, st.Recorded, want)
					}
					// Threads take their own abandoned instances again; those of
					// others come back when the tracer has looked.
					if st.Missed != 0 && !(name == "never" && threads > 1 && !o.NoOptimize) {
						t.Errorf("%s: %d missed", name, st.Missed)
					}
				}
			})
		}
	}
}

func TestValues(t *testing.T) {
	prog := callsFixture(t)
	sub := startSubject(t, prog, "pair", "3")
	l := attach(t, sub.pid(), Options{},
		`p:in pair_sum a=+0(%di):s32 b=+8(%di):s64 name=+16(%di):string next=+16(+32(%di)):string c=%si:u8 neg=%dx:s32 g=@global_number:x64 t=+0(@global_text):string bad=+0(\0):u32 worse=+0(\16):string`,
		`r:out pair_sum v=$retval:s64 first=+16($arg1):string`)
	sub.work()
	l.finish(sub.pid())
	sub.end()
	want := []string{
		`in a=7 b=0 name="first" next="second" c=0 neg=0 g=0x1122334455667788`,
		`out v=7 first="first" (run+`,
		`in a=7 b=1 name="first" next="second" c=1 neg=-1 g=0x1122334455667788`,
		`out v=8 first="first" (run+`,
	}
	got := l.sink.all()
	if len(got) != 6 {
		t.Fatalf("%d lines: %q", len(got), got)
	}
	for i, w := range want {
		if !strings.HasPrefix(got[i], w) {
			t.Errorf("line %d is %q, want %q…", i, got[i], w)
		}
	}
	if !strings.Contains(got[0], "bad=(fault) worse=(fault)") {
		t.Errorf("unreadable memory was not a fault: %q", got[0])
	}
}

// TestEveryInstruction probes every instruction of functions that keep data in
// flags, the red zone and jump tables, all at once.
func TestEveryInstruction(t *testing.T) {
	prog := callsFixture(t)
	for mode, fn := range map[string]string{"red": "red_zone", "switch": "switcher", "loops": "loops", "recurse": "recurse", "many": "many", "real": "real", "indirect": "indirect"} {
		t.Run(fn, func(t *testing.T) {
			want := plain(t, prog, mode, "300", "2")
			sub := startSubject(t, prog, mode, "300", "2")
			defs := everyInstruction(t, prog, fn)
			l := attach(t, sub.pid(), Options{}, defs...)
			if got := sub.work(); got != want {
				t.Errorf("probed, the program printed %q, otherwise %q", got, want)
			}
			l.finish(sub.pid())
			sub.end()
			if st := l.stat("i0"); st.Hits < 600 {
				t.Errorf("the first instruction was hit %d times", st.Hits)
			}
		})
	}
}

// everyInstruction gives a definition for each instruction of a function that
// can be probed, named i and its offset.
func everyInstruction(t *testing.T, prog, fn string) []string {
	t.Helper()
	ls := inspectFile(t, prog, fn)
	var defs []string
	for _, line := range ls[0].Lines {
		if line.Probe == KindRefused {
			t.Errorf("%s+%d %s is refused: %s", fn, line.Offset, line.Text, line.Why)
			continue
		}
		defs = append(defs, fmt.Sprintf("p:i%d %s+%d sp=%%sp ip=%%ip", line.Offset, fn, line.Offset))
	}
	return defs
}
