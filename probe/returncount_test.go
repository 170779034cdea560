package probe

import (
	"fmt"
	"testing"

	"kprobe/internal/fixture"
)

// TestReturnCounts: a call that returns is a hit, or it found all instances in
// use and is missed; one that doesn't return is no hit. The program counts its
// calls and returns. Each is done by exits, by return trampolines (the function returns by
// a jump to another) and by breakpoints.
func TestReturnCounts(t *testing.T) {
	exits := fixture.Build(t, "probe_returns.c", "-O2", "-pthread")
	trampolines := fixture.Build(t, "probe_returns.c", "-O2", "-pthread", "-DSHARED")
	ways := []struct {
		name, prog string
		opts       Options
	}{{"exits", exits, Options{}}, {"trampolines", trampolines, Options{}}, {"breakpoints", trampolines, Options{NoOptimize: true}}}
	rows := []struct {
		mode           string
		count, threads int
		slow           int // count with breakpoints
		max            int
		missed         bool // instances run out
	}{
		{"flat", 20000, 8, 40, 64, false},
		{"flat", 20000, 8, 40, 40, false},
		{"deep", 40, 1, 1, 1024, false},
		{"deep", 40, 1, 1, 50, true},
		{"deep", 10, 8, 1, 200, true},
		{"jump", 40, 1, 2, 128, false},
		{"jump", 40, 8, 1, 2048, false}, // 205 deep in each thread
		{"jump", 40, 1, 2, 60, true},
		{"leave", 30, 1, 5, 64, true},
		{"leave", 10, 4, 3, 1024, false},
		{"fork", 20, 1, 10, 64, false},
		{"fork", 20, 1, 10, 33, false},
		{"exec", 50, 1, 10, 64, false},
	}
	for _, way := range ways {
		for _, r := range rows {
			t.Run(fmt.Sprintf("%s %s %d threads r%d", way.name, r.mode, r.threads, r.max), func(t *testing.T) {
				n := r.count
				if way.opts.NoOptimize {
					n = r.slow
				}
				sub := startSubject(t, way.prog, r.mode, fmt.Sprint(n), fmt.Sprint(r.threads))
				l := attach(t, sub.pid(), way.opts, fmt.Sprintf("r%d:rec rec v=$retval:s64 n=$arg1:s64", r.max))
				byExits := len(exitPlaces(t, l)) > 0
				if jumps, why := optimizedOf(l, "rec"); (jumps == 1) == way.opts.NoOptimize || byExits != (way.name == "exits") {
					t.Fatalf("%d places by a jump, by exits %v: %s", jumps, byExits, why)
				}
				var calls, returns uint64
				if _, err := fmt.Sscanf(sub.work(), "done %d %d", &calls, &returns); err != nil {
					t.Fatal(err)
				}
				if r.mode == "exec" {
					sub.expect("done 0 0")
				}
				l.finish(sub.pid())
				sub.end()
				st := l.stat("rec")
				left := calls - returns
				// Instances of calls that were left come back when they are needed:
				// with return trampolines the tracer finds those of other threads.
				missed := r.missed || way.name == "trampolines" && r.mode == "jump" && r.threads > 1
				switch {
				case !missed && (st.Hits != returns || st.Missed != 0):
					t.Errorf("%d hits, %d missed of %d calls, %d of which returned", st.Hits, st.Missed, calls, returns)
				case left == 0 && st.Hits+st.Missed != calls, st.Hits > returns, st.Hits+st.Missed < returns, st.Hits+st.Missed > calls:
					t.Errorf("%d hits and %d missed aren't %d calls, %d of which returned", st.Hits, st.Missed, calls, returns)
				}
				for _, line := range l.sink.all() {
					var v, n, want int64
					if _, err := fmt.Sscanf(line, "rec v=%v n=%v", &v, &n); err != nil {
						t.Fatalf("%s: %v", line, err)
					}
					for i := int64(1); i <= n; i++ {
						want = want*3 + i
					}
					if v != want && r.mode != "fork" {
						t.Fatalf("%s, want %d", line, want)
					}
				}
			})
		}
	}
}
