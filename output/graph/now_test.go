package graph

import (
	"bytes"
	"testing"

	"kprobe/probe/results"
	"kprobe/symbols"
)

// TestNow: threads with the same calls stand together, those of which more is known
// alone; what probes have seen begin has its time.
func TestNow(t *testing.T) {
	idle := func(tid int, since uint64) *results.InsideThread {
		return &results.InsideThread{
			TID: tid, Comm: "pool", State: 'S', Since: since, Call: &results.SystemCall{Name: "futex", Args: "uaddr=0x10"},
			Frames: []results.InsideFrame{{Addr: 2, Name: "wait", Guess: true}, {Addr: 1, Name: "start"}},
		}
	}
	p := &results.Inside{PID: 7, Comm: "pr\x1bog", Deadlock: []int{7, 8}, More: 3, GoOwn: 2}
	p.Threads = []*results.InsideThread{
		{
			TID: 7, Comm: "pr\x1bog", CPU: 1, State: 'S', Since: 2_500_000_000, Call: &results.SystemCall{Name: "futex", Args: "uaddr=0x20"},
			Waits:  &results.Waiting{What: "mutex 0x20", TID: 8},
			Frames: []results.InsideFrame{{Name: "lock", File: "a.c", Line: 5, Inlined: true}, {Name: "handle", Open: &results.OpenCall{Entry: 1e9}}, {Name: "<signal handler called>", Signal: true}, {Name: "main"}},
		},
		{TID: 8, Comm: "other", State: 'R', Samples: 4, Frames: []results.InsideFrame{{Name: "loop"}}, Inner: []results.FunctionCount{{Name: "a", Times: 3}, {Name: "b", Times: 1}}, End: symbols.StackTruncated},
		idle(9, 1e9), idle(10, 3e9),
		{TID: 11, Comm: "x", State: 'D', Wait: "folio_wait"},
	}
	p.Goroutines = []*results.Goroutine{
		{ID: 1, Status: "waits", Reason: "select", Since: 3e9, Frames: []results.InsideFrame{{Addr: 5, Name: "main.f"}}},
		{ID: 4, Status: "waits", Reason: "select", Frames: []results.InsideFrame{{Addr: 5, Name: "main.f"}}},
	}
	const want = `# pr\x1bog-7: 5 threads, 1 running, 3 sleeping, 1 in uninterruptible sleep
# deadlock: pr\x1bog-7 waits for other-8 waits for pr\x1bog-7

# pr\x1bog-7: sleeps, hasn't run for 2.500 s
  1)  pr\x1bog-7           |               |  main() {
  1)  pr\x1bog-7           |               |    <signal handler called>
  1)  pr\x1bog-7           | $ 3000000 us  |    handle() {
  1)  pr\x1bog-7           |               |      lock() { /* a.c:5, inlined */
  1)  pr\x1bog-7           | $ 2500000 us  |        futex(uaddr=0x20); /* mutex 0x20: other-8 has it */

# other-8: runs, of 4 samples
  0)  other-8              |               |  /* the outer calls are farther up the stack than kprobe looked */
  0)  other-8              |               |  loop() {
  0)  other-8              |               |    /* innermost, in samples: a 3, b 1 */

# pool-9, pool-10: sleep, haven't run for 1.000 s to 3.000 s
  0)  pool-9               |               |  start() {
  0)  pool-9               |               |    ? wait() {
  0)  pool-9               |               |      futex(uaddr=0x10);

# x-11: can't be interrupted, in the kernel's folio_wait
  0)  x-11                 |               |  /* not known */

# 3 threads more aren't shown

# 2 goroutines: 1, 4: wait (select), at least 1.000 s
  -)  g-1                  |               |  main.f() {

# 2 goroutines of the runtime itself wait besides
`
	var b bytes.Buffer
	if err := Now(&b, p, 4e9, true); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
