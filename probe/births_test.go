package probe

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// TestBirths counts the calls of a program that makes threads and processes all
// the time: those of its threads, and of children in its memory; with Follow
// those of the other children too.
func TestBirths(t *testing.T) {
	prog := fixture.Build(t, "storm_births.c", "-O2", "-lpthread")
	for _, c := range []struct {
		mode   string
		n      int
		shares bool // what is made runs in the program's memory
	}{{"thread", 100, true}, {"vfork", 40, true}, {"fork", 40, false}, {"deep", 20, false}} {
		for _, o := range []Options{{}, {NoOptimize: true}, {Follow: true}} {
			t.Run(fmt.Sprintf("%s-%v-%v", c.mode, o.NoOptimize, o.Follow), func(t *testing.T) {
				sub := startSubject(t, prog, c.mode, fmt.Sprint(c.n))
				l := attach(t, sub.pid(), o, "p:in work a=$arg1", "r:out work v=$retval")
				got := sub.work()
				var parent, child, bad int
				if !scannedDone(got, &parent, &child, &bad) || parent != 3*c.n || bad != 0 {
					t.Fatalf("the program printed %q", got)
				}
				want := parent
				if c.shares || o.Follow {
					want += child
				}
				if sum := l.finish(sub.pid()); sum.Stats[0].Hits != uint64(want) || sum.Stats[1].Hits != uint64(want) || sum.Stats[0].Lost != 0 {
					t.Errorf("%d calls and %d returns were seen of %d", sum.Stats[0].Hits, sum.Stats[1].Hits, want)
				}
				sub.end()
			})
		}
	}
}

// TestArmDuringBirths puts probes into programs that make others all the time,
// and takes them out again. A thread that has made a process is fit for an
// injected call only once that event is handled, before Run too.
func TestArmDuringBirths(t *testing.T) {
	prog := fixture.Build(t, "storm_births.c", "-O2", "-lpthread")
	for _, mode := range []string{"fork", "vfork", "deep", "thread"} {
		t.Run(mode, func(t *testing.T) {
			sub := startSubject(t, prog, mode)
			for i := range full(6, 100) {
				l := attach(t, sub.pid(), Options{NoOptimize: i%3 == 1, Follow: i%3 == 2}, "p:in work a=$arg1", "r:out work v=$retval")
				if !waitUntil(func() bool { return l.stat("out").Hits > 20 }) {
					t.Fatal("no calls are seen")
				}
				time.Sleep(time.Duration(i%4) * time.Millisecond)
				l.finish(sub.pid())
			}
			var parent, child, bad int
			if got := sub.work(); !scannedDone(got, &parent, &child, &bad) || bad != 0 {
				t.Errorf("the program printed %q", got)
			}
			sub.end()
		})
	}
}

func scannedDone(line string, parent, child, bad *int) bool {
	_, err := fmt.Sscanf(line, "done %d %d %d", parent, child, bad)
	return err == nil
}

// TestAttachDuringVfork puts breakpoints into a program one of whose threads
// waits for its child, which was made before and runs in the same memory: it
// meets them as the program's threads do.
func TestAttachDuringVfork(t *testing.T) {
	prog := fixture.Build(t, "storm_births.c", "-O2", "-lpthread")
	for _, o := range []Options{{NoOptimize: true}, {}} {
		sub := startSubject(t, prog, "held")
		l := attach(t, sub.pid(), o, "p:in work a=$arg1", "r:out work v=$retval")
		if got := sub.work(); got != "done 0 5 0" {
			t.Errorf("the program printed %q, want done 0 5 0", got)
		}
		if sum := l.finish(sub.pid()); sum.Stats[0].Hits != 5 || sum.Stats[1].Hits != 5 {
			t.Errorf("%d calls and %d returns were seen of 5", sum.Stats[0].Hits, sum.Stats[1].Hits)
		}
		sub.end()
	}
}

// TestEndDuringBirths ends sessions that follow children while one is being
// born: that its probes don't come in any more is nothing to warn of.
func TestEndDuringBirths(t *testing.T) {
	prog := fixture.Build(t, "storm_births.c", "-O2", "-lpthread")
	sub := startSubject(t, prog, "deep")
	for i := range full(12, 200) {
		s, err := Attach(t.Context(), []int{sub.pid()}, Options{Follow: true, Log: logTo(slog.LevelWarn, func(text string) {
			t.Errorf("a warning: %s", text)
		})})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Arm(t.Context(), parseDefs(t, "p:in work a=$arg1", "r:out work v=$retval")); err != nil {
			t.Fatal(err)
		}
		l := collecting(t, s)
		l.run()
		if !waitUntil(func() bool { return l.stat("out").Hits > uint64(10+3*i) }) {
			t.Fatal("no calls are seen")
		}
		l.finish(sub.pid())
	}
	var parent, child, bad int
	if got := sub.work(); !scannedDone(got, &parent, &child, &bad) || bad != 0 {
		t.Errorf("the program printed %q", got)
	}
	sub.end()
}
