package probe

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// calls0to7 is how many calls a function makes that calls itself n & 7 times
// in round n, itself included.
func calls0to7(count int) int {
	n := 0
	for i := range count {
		n += i&7 + 1
	}
	return n
}

func half(n int) int { return n / 2 }

// unwindModes are the ways of probe_unwind to run, what is probed in each, and
// how many returns of each event are seen in n rounds.
var unwindModes = []struct {
	mode  string
	count int
	defs  []string
	hits  map[string]func(n int) int
}{
	{"throw", 300, []string{"r:thrower thrower", "r:catcher catcher v=$retval", "p:in thrower"},
		map[string]func(int) int{"thrower": none, "catcher": id, "in": calls0to7}},
	{"frames", 200, []string{"r:frames frames v=$retval", "r:bt libc:backtrace"},
		map[string]func(int) int{"frames": calls0to7, "bt": id}},
	{"jump", 300, []string{"r:sets sets v=$retval", "r:jumps jumps", "p:in jumps"},
		map[string]func(int) int{"sets": id, "jumps": none, "in": calls0to7}},
	{"vfork", 40, []string{"r:spawns spawns v=$retval", "r:wait libc:waitpid"},
		map[string]func(int) int{"spawns": id, "wait": id}},
	{"context", 100, []string{"r:contexts contexts v=$retval", "r:set libc:setcontext"},
		map[string]func(int) int{"contexts": id}},
	{"cancel", 100, []string{"r:waits waits", "p:in waits", "p:cleanup cleanup"},
		map[string]func(int) int{"waits": none, "in": id}},
	{"exit", 200, []string{"r:leaves leaves v=$retval", "p:in leaves"},
		map[string]func(int) int{"leaves": half, "in": id}},
	{"coroutine", 60, []string{"r40:body body v=$retval", "r:yield yield", "r:resume resume", "r:swap libc:swapcontext"},
		map[string]func(int) int{"body": twice, "yield": func(n int) int { return 6 * n }, "resume": func(n int) int { return 8 * n }}},
}

// TestUnwinding runs programs that leave return-probed functions by throwing,
// longjmp, cancellation, or on another stack, with the fewest instances that
// can do. What is left behind must be reclaimed: no call is missed.
func TestUnwinding(t *testing.T) {
	prog := fixture.Build(t, "probe_unwind.cc", "-O2")
	for _, m := range unwindModes {
		for _, o := range []Options{{MaxActive: 12}, {MaxActive: 12, NoOptimize: true}} {
			t.Run(fmt.Sprintf("%s-%v", m.mode, !o.NoOptimize), func(t *testing.T) {
				l := unharmed(t, prog, o, m.defs, m.mode, fmt.Sprint(m.count))
				for name, f := range m.hits {
					if st := l.stat(name); st.Hits != uint64(f(m.count)) || st.Missed != 0 {
						t.Errorf("%s: %d hits and %d missed, want %d and 0", name, st.Hits, st.Missed, f(m.count))
					}
				}
			})
		}
	}
}

// TestReturnsTwice probes the returns of functions that return twice: the
// program must not notice. Which of the returns are seen is not laid down,
// only that each call is seen at most as often as it returns.
func TestReturnsTwice(t *testing.T) {
	prog := fixture.Build(t, "probe_unwind.cc", "-O2")
	for _, m := range []struct{ mode, def string }{
		{"jump", "r:twice libc:_setjmp"}, {"vfork", "r:twice libc:vfork"}, {"context", "r:twice libc:getcontext"},
	} {
		for _, o := range []Options{{}, {NoOptimize: true}} {
			t.Run(fmt.Sprintf("%s-%v", m.mode, !o.NoOptimize), func(t *testing.T) {
				l := unharmed(t, prog, o, []string{m.def}, m.mode, "50")
				if n := l.stat("twice").Hits; n == 0 || n > 101 {
					t.Errorf("%d returns seen of 50 calls", n)
				}
			})
		}
	}
}

// TestDeepRecursion recurses deeper than there are instances: the outermost
// calls are followed, each other is counted as missed.
func TestDeepRecursion(t *testing.T) {
	prog := fixture.Build(t, "probe_unwind.cc", "-O2")
	depth := 10_000
	if os.Getenv("KPROBE_TEST_FULL") == "1" {
		depth = 100_000
	}
	const active = 100
	for _, o := range []Options{{}, {NoOptimize: true}} {
		t.Run(fmt.Sprint(!o.NoOptimize), func(t *testing.T) {
			want := plain(t, prog, "deep", fmt.Sprint(depth))
			sub := startSubject(t, prog, "deep", fmt.Sprint(depth))
			l := attach(t, sub.pid(), o, fmt.Sprintf("r%d:out recurse n=$arg1 v=$retval", active))
			start := time.Now()
			if got := sub.work(); got != want {
				t.Errorf("probed, the program printed %q, otherwise %q", got, want)
			}
			took := time.Since(start)
			l.finish(sub.pid())
			sub.end()
			st := l.stat("out")
			if st.Hits != active || st.Missed != uint64(depth+1-active) {
				t.Errorf("%d hits and %d missed, want %d and %d", st.Hits, st.Missed, active, depth+1-active)
			}
			t.Logf("%v for each call", took/time.Duration(depth))
			// The innermost of those that are followed returns first.
			got := l.sink.all()
			if first := fmt.Sprintf("out n=%#x v=", depth-active+1); len(got) > 0 && !strings.HasPrefix(got[0], first) {
				t.Errorf("the first return is %q, want %q…", got[0], first)
			}
		})
	}
}
