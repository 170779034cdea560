package probe

import (
	"fmt"
	"testing"

	"kprobe/internal/fixture"
)

// TestFlagsKept: a detour at a function's entry may change status flags that the function overwrites, but not for a
// probe behind it that reads them: one of the same session, added before or after, one with a handler, and one of a later
// session.
func TestFlagsKept(t *testing.T) {
	prog := fixture.Build(t, "flags_kept.c", "-O1")
	const (
		calls        = 1000
		arith uint64 = 0x8d5 // CF, PF, AF, ZF, SF, OF
	)
	reads := "p:reads work+7 f=%flags"
	checked := func(t *testing.T, l *live, sub *subject, want uint64) {
		t.Helper()
		sub.work()
		if !waitUntil(func() bool { return l.stat("reads").Recorded == want }) {
			t.Errorf("%+v, want %d hits", l.stat("reads"), want)
		}
		good, bad := uint64(0), uint64(0)
		for _, line := range l.sink.all() {
			var f uint64
			if n, _ := fmt.Sscanf(line, "reads f=%v", &f); n == 1 {
				if f&arith == arith {
					good++
				} else if bad++; bad == 1 {
					t.Errorf("%s, want the flags %#x", line, arith)
				}
			}
		}
		if good != want {
			t.Errorf("%d hits have the program's flags, want %d", good, want)
		}
	}
	for _, entry := range []string{"p:entry work x=%di", "r:entry work v=$retval", "r:entry work v=$retval x=%di"} {
		// The last one's place lies in a function of another name.
		for _, order := range [][]string{{entry, reads}, {reads, entry}, {entry, "p:reads inner f=%flags"}} {
			t.Run(order[0]+" first, "+order[1], func(t *testing.T) {
				sub := startSubject(t, prog)
				l := attach(t, sub.pid(), Options{}, order[0])
				sub.work()
				if err := l.s.Arm(t.Context(), parseDefs(t, order[1])); err != nil {
					t.Fatal(err)
				}
				if n := l.stat("entry").Trapped; n != 0 {
					t.Errorf("%d breakpoints at the entry", n)
				}
				want := uint64(calls)
				if order[0] == reads {
					want += calls
				}
				checked(t, l, sub, want)
				l.finish(sub.pid())
				sub.quit()
			})
		}
		t.Run(entry+" again", func(t *testing.T) {
			sub := startSubject(t, prog)
			l := attach(t, sub.pid(), Options{}, reads)
			for range 2 { // the second time it is planned alone
				if err := l.s.Arm(t.Context(), parseDefs(t, entry)); err != nil {
					t.Fatal(err)
				}
				entry = "p:other work y=%si"
			}
			checked(t, l, sub, calls)
			l.finish(sub.pid())
			sub.quit()
		})
	}
	t.Run("handler", func(t *testing.T) {
		sub := startSubject(t, prog)
		l := attach(t, sub.pid(), Options{}, "p:entry work x=%di")
		hits, bad := 0, 0
		k := &Kprobe{Symbol: "work", Offset: 7, PreHandler: func(_ *Kprobe, r *Regs) bool {
			if hits++; r.Flags()&arith != arith {
				bad++
			}
			return false
		}}
		if err := l.s.Register(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		sub.work()
		l.finish(sub.pid())
		sub.quit()
		if hits != calls || bad != 0 {
			t.Errorf("%d hits, %d without the program's flags", hits, bad)
		}
	})
	t.Run("a later session", func(t *testing.T) {
		sub := startSubject(t, prog)
		leaveIn(t, sub.pid(), Options{Detach: true}, "p:entry work x=%di")
		l := attach(t, sub.pid(), Options{}, reads)
		checked(t, l, sub, calls)
		l.stop()
		<-l.done
		if err := l.s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		sub.quit()
	})
}
