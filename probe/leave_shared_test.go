package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/engine"
	"kprobe/probe/tracee"
)

// watchWrites counts the writes of more than a byte into text while a thread that
// executes it runs. It must be called on the tracer's thread.
func watchWrites(s *Session, tg *engine.Target) *int {
	wrong := new(int)
	s.engine.Tracer.FailWith(func(r tracee.Request) error {
		if r.Kind != tracee.RequestWrite || r.Len < 2 || tg.Space.ModuleAt(r.Addr) == nil {
			return nil
		}
		for _, q := range s.engine.Targets {
			for _, th := range q.Proc.Threads() {
				if !th.Stopped() {
					*wrong++
				}
			}
		}
		return nil
	})
	return wrong
}

// TestSharedMemory changes probes, and has them changed by faults, in a program with
// a child that shares its memory: whoever rewrites the text stops both, whoever of
// them has brought it about.
func TestSharedMemory(t *testing.T) {
	prog := fixture.Build(t, "leave_shared.c", "-O2")
	for _, mode := range []string{"works", "faults"} {
		t.Run(mode, func(t *testing.T) {
			sub := startSubject(t, prog, mode)
			l := attach(t, sub.pid(), Options{}, "p:in work a=$arg1")
			var wrong *int
			if err := l.s.engine.Tracer.Do(func() error {
				tg := l.s.engine.Targets[sub.pid()]
				if n := len(tg.Proc.Sharers()); n != 1 {
					return fmt.Errorf("%d children share the memory, want 1", n)
				}
				wrong = watchWrites(l.s, tg)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if mode == "faults" {
				sub.line()
			}
			for range full(8, 200) {
				var link *Link
				var err error
				waitUntil(func() bool { // the only thread that can make a call may stand at a fault
					link, err = l.s.Add(t.Context(), parseDefs(t, "p:load load", "r:out work v=$retval", "p:mid work+4"))
					return !errors.Is(err, tracee.ErrNoThread)
				})
				if err != nil {
					t.Fatal(err)
				}
				had := l.stat("load").Hits
				if !waitUntil(func() bool { return l.stat("load").Hits > had+300 }) {
					t.Fatalf("no hits; the program: %s", endOf(sub.pid()))
				}
				if err := link.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			_ = l.s.engine.Tracer.Do(func() error {
				if *wrong > 0 {
					t.Errorf("%d times a thread ran while the text was rewritten", *wrong)
				}
				l.s.engine.Tracer.FailWith(nil)
				l.fallbacks = l.s.engine.Targets[sub.pid()].Area.Fallbacks // a thread that faults may be in one when kprobe leaves
				return nil
			})
			l.finish(sub.pid())
			if got := sub.work(); got != "done 0" {
				t.Errorf("the program printed %q, want done 0", got)
			}
			sub.end()
		})
	}
}

// TestSharedMemoryOutlives ends the process that was attached to, or has it execute a
// program, while a child in its memory works: the child's probes go on, and it is
// left without any.
func TestSharedMemoryOutlives(t *testing.T) {
	prog := fixture.Build(t, "leave_shared.c", "-O2")
	for _, mode := range []string{"leaves", "executes"} {
		for name, o := range map[string]Options{"jumps": {}, "breakpoints": {NoOptimize: true}} {
			t.Run(mode+"/"+name, func(t *testing.T) {
				sub := startSubject(t, prog, mode)
				var kid int
				if _, err := fmt.Sscanf(sub.ready, "ready %d", &kid); err != nil {
					t.Fatal(err)
				}
				l := attach(t, sub.pid(), o, "p:in work a=$arg1", "r:out work v=$retval")
				sub.line()
				waitUntil(func() bool {
					exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", sub.pid()))
					return err != nil || !strings.HasSuffix(exe, "leave_shared")
				})
				had := l.stat("in").Hits
				if !waitUntil(func() bool { return l.stat("in").Hits > had+1000 }) {
					t.Error("the child's hits are not seen any more")
				}
				// The child's actions are its own: where no fallback handler is in front of a handler yet,
				// the handler may lead to one, and the fallback handlers' pages stay.
				waitUntil(func() (laid bool) {
					err := l.s.engine.Tracer.Do(func() error {
						for _, tg := range l.s.engine.Targets {
							laid = tg.IsMain() && tg.LayFallbacksAgain(nil)
						}
						return nil
					})
					return err == nil && laid
				})
				l.stop()
				<-l.done
				if err := l.s.Close(context.Background()); err != nil {
					t.Errorf("close: %v", err)
				}
				checkClean(t, kid)
				sub.line()
				if got := sub.expect("done"); got != "done 0" {
					t.Errorf("the child printed %q, want done 0", got)
				}
				if mode == "executes" {
					_ = sub.cmd.Process.Kill()
				}
				sub.line()
				if !waitUntil(func() bool { return syscall.Kill(kid, 0) != nil || endOf(kid)[0] == 'Z' }) {
					t.Error("the child doesn't end")
				}
				_ = sub.cmd.Wait()
			})
		}
	}
}
