package probe

import (
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/probe/engine"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// busyShared are return probes of which most calls find no instance: of exits, of
// return trampolines, and of functions in each other; and a probe with a text.
var busyShared = []string{"p:said work s=+0($arg2):string", "r1:work work v=$retval", "r1:recurse recurse v=$retval n=$arg1", "r1:table table v=$retval"}

// sharing stops the target until threads were found in shared code, and gives how
// many, and how many of them could be led out of it.
func sharing(t *testing.T, l *live, pid int) (found, left int) {
	t.Helper()
	onTracer(t, l, func(tg *engine.Target) error {
		return tracee.IgnoreLate(tg.WithStopped(t.Context(), func(stopped []*tracee.Thread) error {
			for _, th := range stopped {
				regs, err := th.Regs()
				if err != nil || !tg.InShared(symbols.Addr(regs.Rip)) {
					continue
				}
				found++
				if tg.Patches.Recording(symbols.Addr(regs.Rip)) {
					t.Error("shared code is taken for a detour")
				}
				st, at := tg.StageOf(regs)
				if st.None() {
					t.Errorf("thread %d at %#x in shared code comes from nowhere", th.TID(), regs.Rip)
					continue
				}
				out, ok := st.Leave(at, tg.Proc)
				if !ok || symbols.Addr(out.Rip) != st.At {
					t.Errorf("thread %d at %#x in shared code is led to %#x (%v), not %v", th.TID(), regs.Rip, out.Rip, ok, st.At)
					continue
				}
				left++
			}
			return nil
		}))
	})
	return found, left
}

// TestSharedCode finds threads in the code that probes share, tells where
// they came from, takes the probes out from under them, and unmaps it: the program
// notices nothing.
func TestSharedCode(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "probe_forever.c", "-O2"), "3")
	found := 0
	for round := 0; round < 4 || found < 20; round++ {
		l := attach(t, sub.pid(), Options{})
		link, err := l.s.Add(t.Context(), parseDefs(t, busyShared...))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"work", "recurse", "table"} {
			if n, why := optimizedOf(l, name); n != 1 {
				t.Fatalf("%s is no jump: %s", name, why)
			}
		}
		met := 0
		if !waitUntil(func() bool {
			n, left := sharing(t, l, sub.pid())
			met += n
			return t.Failed() || left != n || met >= 5
		}) {
			t.Fatal("no thread was ever in shared code")
		}
		found += met
		if round%2 == 1 {
			if err := link.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			givesBack(t, l)
		}
		var laid []symbols.Addr
		onTracer(t, l, func(tg *engine.Target) error {
			for _, s := range tg.Area.Shared {
				laid = append(laid, symbols.Addr(s.Base))
			}
			return nil
		})
		l.finish(sub.pid())
		maps, err := symbols.ReadMaps(sub.pid())
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range laid {
			for _, m := range maps {
				if a >= m.Start && a < m.End {
					t.Errorf("the shared code at %v is still mapped", a)
				}
			}
		}
		if t.Failed() {
			break
		}
	}
	if got := sub.work(); got != "done 0" {
		t.Errorf("the program printed %q, want no round wrong", got)
	}
	sub.end()
}

// TestSharedRenewed lays the shared code again, as when threads' numbers become
// readable, while threads are in it: calls under way return, and the tables lead to
// the new.
func TestSharedRenewed(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "probe_forever.c", "-O2"), "3")
	l := attach(t, sub.pid(), Options{}, busyShared...)
	for range 5 {
		onTracer(t, l, func(tg *engine.Target) error { return tg.ShareRenewed(t.Context()) })
	}
	onTracer(t, l, func(tg *engine.Target) error {
		s := tg.Area.Shared
		if len(s) != 6 || len(tg.ExitProbes) == 0 {
			t.Fatalf("%d times laid, %d tables", len(s), len(tg.ExitProbes))
		}
		for _, x := range tg.ExitProbes {
			want := x.Calls().Head(s[5])
			got := make([]byte, len(want))
			if _, err := tg.Proc.ReadMemory(got, symbols.Addr(x.Calls().Addr)); err != nil || string(got) != string(want) {
				t.Errorf("the head at %#x is % x, %v; want % x", x.Calls().Addr, got, err, want)
			}
		}
		return nil
	})
	before := l.stat("recurse")
	if !waitUntil(func() bool {
		st := l.stat("recurse")
		return st.Hits > before.Hits+1000 && st.Missed > before.Missed+1000
	}) {
		t.Errorf("the probes see nothing any more: %+v", l.stat("recurse"))
	}
	l.finish(sub.pid())
	if got := sub.work(); got != "done 0" {
		t.Errorf("the program printed %q, want no round wrong", got)
	}
	sub.end()
}

// TestSharedSignals sends signals to threads in shared code: handlers run when
// they have left it.
func TestSharedSignals(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "probe_forever.c", "-O2"), "3")
	l := attach(t, sub.pid(), Options{}, busyShared...)
	met := 0
	if !waitUntil(func() bool {
		onTracer(t, l, func(tg *engine.Target) error {
			return tracee.IgnoreLate(tg.WithStopped(t.Context(), func(stopped []*tracee.Thread) error {
				for _, th := range stopped {
					// A stop and the way on; its default action is nothing.
					if regs, err := th.Regs(); err == nil && tg.InShared(symbols.Addr(regs.Rip)) {
						met++
						if err := unix.Tgkill(sub.pid(), th.TID(), unix.SIGURG); err != nil {
							return err
						}
					}
				}
				return nil
			}))
		})
		return met >= 20
	}) {
		t.Fatal("no thread was ever in shared code")
	}
	l.finish(sub.pid())
	if got := sub.work(); got != "done 0" {
		t.Errorf("the program printed %q, want no round wrong", got)
	}
	sub.end()
}

// TestSharedKilled kills kprobe while threads are in the code that return probes
// share: the program runs on over it, and a later kprobe takes it out.
func TestSharedKilled(t *testing.T) {
	killedBusy(t, full(3, 50), 2, func(c ring.Counts) bool { return c.Missed > 100 },
		append([]string{"trace", "-q", "-o", "/dev/null"}, busyShared...)...)
}

// killedBusy kills kprobe, with its supervisor, so many times in a command on probe_forever,
// once so many of its jumps are busy: the program runs on, and a later kprobe takes
// everything out.
func killedBusy(t *testing.T, rounds, jumps int, busy func(ring.Counts) bool, args ...string) {
	t.Helper()
	bin := buildKprobe(t)
	sub := startSubject(t, fixture.Build(t, "probe_forever.c", "-O2"), "3")
	args = slices.Insert(args, 1, "-p", strconv.Itoa(sub.pid()))
	for range rounds {
		c := startKprobe(t, bin, args...)
		if !waitUntil(func() bool {
			l, err := OpenLive(sub.pid())
			if err != nil {
				return false
			}
			defer l.Close()
			n := 0
			for _, p := range l.Probes() {
				if p.Optimized && busy(p.Counts) {
					n++
				}
			}
			return n >= jumps
		}) {
			t.Fatalf("the probes see nothing: %s", c.stderr.String())
		}
		c.kill(killBoth)
		<-c.done
		if pids, err := Recover(t.Context(), []int{sub.pid()}); err != nil || len(pids) != 1 {
			t.Errorf("recovered %v: %v", pids, err)
		}
		checkClean(t, sub.pid())
	}
	if got := sub.work(); got != "done 0" {
		t.Errorf("the program printed %q, want no round wrong", got)
	}
	sub.end()
}
