package probe

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// TestHazardD7 (and D1, D2, D3, D9): signals at 10 kHz never find the program
// in kprobe's memory, handlers hit probes of their own, and each call is one hit.
func TestHazardD7(t *testing.T) {
	sub := startStorm(t, "2", "prof")
	defs := []string{"p:f0 f0 a=$arg1 s=+0(%sp):x64", "p:f1 f1", "p:f2 f2", "p:f3 f3", "p:f4 f4", "p:f5 f5", "p:f6 f6", "p:m f1+5", "p:n f1+10"}
	l, _ := engage(t, sub.pid(), Options{}, defs...)
	tactics(t, l, "f0", "f1", "f2", "f3", "f4", "f5", "f6", "m", "n")
	sub.line()
	time.Sleep(time.Second)
	sub.stop()
	l.finish(sub.pid())
	sub.end()
	for f, calls := range sub.calls {
		if st := l.stat(fmt.Sprint("f", f)); st.Hits != calls {
			t.Errorf("f%d: %d hits of %d calls", f, st.Hits, calls)
		}
	}
}

// process runs a mode of hazard_process with probes and without: it must
// print the same.
func process(t *testing.T, o Options, defs []string, args ...string) *live {
	t.Helper()
	prog := fixture.Build(t, "hazard_process.c", "-O2", "-lpthread")
	want := plain(t, prog, args...)
	if !strings.HasSuffix(want, "bad 0") {
		t.Fatalf("the fixture is wrong: it printed %q", want)
	}
	sub := startSubject(t, prog, args...)
	l, _ := engage(t, sub.pid(), o, defs...)
	if got := sub.work(); got != want {
		t.Errorf("probed, the program printed %q, otherwise %q", got, want)
	}
	l.finish(sub.pid())
	sub.end()
	return l
}

// TestHazardD7Escape: handlers that leave by siglongjmp, wherever they came.
func TestHazardD7Escape(t *testing.T) {
	l := process(t, Options{}, []string{"p:in work a=$arg1 s=+0($arg2):string", "p:h on_alarm"}, "escape", "300")
	if st := l.stat("in"); st.Hits < 300_000 {
		t.Errorf("%d hits of at least 300000 calls", st.Hits)
	}
}

// TestHazardP16: a storm of forks, children followed and not.
func TestHazardP16(t *testing.T) {
	for _, follow := range []bool{false, true} {
		t.Run(fmt.Sprint(follow), func(t *testing.T) {
			const count = 15
			l := process(t, Options{Follow: follow}, []string{"p:in work a=$arg1 s=+0($arg2):string"}, "forks", fmt.Sprint(count))
			want := uint64(4 * count)
			if follow {
				want *= 101
			}
			if st := l.stat("in"); st.Hits != want {
				t.Errorf("%d hits, want %d", st.Hits, want)
			}
		})
	}
}

// TestHazardP18: the program executes itself.
func TestHazardP18(t *testing.T) {
	l := process(t, Options{}, []string{"p:in work a=$arg1"}, "execs", "6")
	if st := l.stat("in"); st.Hits == 0 || st.Hits%50 != 0 {
		t.Errorf("%d hits, want 50 for each image", st.Hits)
	} else {
		t.Logf("%d images seen", st.Hits/50)
	}
}

// TestHazardP24: a probed library is unloaded and its place used again.
func TestHazardP24(t *testing.T) {
	lib := fixture.Build(t, "hazard_library.c", "-O2", "-shared", "-fPIC")
	prog := fixture.Build(t, "hazard_process.c", "-O2", "-lpthread")
	const loads = 400 // each for at least three milliseconds
	args := []string{"loads", fmt.Sprint(loads), lib}
	want := plain(t, prog, args...)
	sub := startSubject(t, prog, args...)
	l, _ := engage(t, sub.pid(), Options{}, "p:in work")
	sub.line()
	armed := 0
	var err error
	for try := 0; try < 1000 && armed < 30 && l.stat("in").Hits < 10*loads; try++ {
		if err = l.s.Arm(t.Context(), parseDefs(t, fmt.Sprintf("p:lib%d %s:in_library", armed, lib))); err == nil {
			armed++
		}
	}
	if got := sub.expect("done"); got != want {
		t.Errorf("probed, the program printed %q, otherwise %q", got, want)
	}
	l.finish(sub.pid())
	sub.end()
	hits := uint64(0)
	for _, st := range l.s.Stats() {
		if strings.HasPrefix(st.Event.Name, "lib") {
			hits += st.Hits
		}
	}
	if armed < 20 || hits == 0 {
		t.Errorf("armed %d times in the library and hit %d times; the last error is %v", armed, hits, err)
	}
	if st := l.stat("in"); st.Hits != 10*loads {
		t.Errorf("%d hits, want %d", st.Hits, 10*loads)
	}
}

// TestHazardP22: attaching and leaving again and again leaves nothing behind.
func TestHazardP22(t *testing.T) {
	sub := startStorm(t, "2")
	sub.line()
	size := func() (maps int, resident int64) {
		list, err := symbols.ReadMaps(sub.pid())
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", sub.pid()))
		if err != nil {
			t.Fatal(err)
		}
		var total int64
		if _, err := fmt.Sscan(string(b), &total, &resident); err != nil {
			t.Fatal(err)
		}
		return len(list), resident
	}
	var maps0 int
	var resident0 int64
	for i := range full(30, 1000) {
		l, _ := engage(t, sub.pid(), Options{CountOnly: true}, "p:a f0", "p:b f1 a=$arg1", "p:c f5", "p:d f0+3", "p:e libc:write")
		l.finish(sub.pid())
		if i == 4 {
			maps0, resident0 = size()
		}
	}
	if maps, resident := size(); maps > maps0 || resident > resident0+16 {
		t.Errorf("%d mappings and %d pages, after five rounds %d and %d", maps, resident, maps0, resident0)
	}
	sub.stop()
	sub.end()
}
