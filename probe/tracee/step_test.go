//go:build linux && amd64

package tracee

import (
	"context"
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

func TestStoresFlags(t *testing.T) {
	for _, c := range []struct {
		name string
		code []byte
		want bool
	}{
		{"pushf", []byte{0x9c}, true},
		{"pushfw", []byte{0x66, 0x9c}, true},
		{"with REX", []byte{0x48, 0x9c}, true},
		{"popf", []byte{0x9d}, false},
		{"push", []byte{0x41, 0x54, 0x9c}, false},
		{"only prefixes", []byte{0x66, 0x66, 0x66, 0x66}, false},
		{"nothing", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := storesFlags(c.code); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// stepper keeps a thread stepping for ever.
func stepper(t testing.TB, steps *int) *recorder {
	return &recorder{t: t, step: func(*Thread) Verdict { *steps++; return Step }}
}

// counted reads what the tracer's thread counts.
func counted(t *testing.T, tr *Tracer, n *int) (now int) {
	t.Helper()
	do(t, tr, func() error { now = *n; return nil })
	return now
}

// stepForever makes a thread of the process step from its next stop on.
func stepForever(tr *Tracer, p *Process) error {
	return tr.Do(func() error {
		return p.WithStopped(context.Background(), func(ts []*Thread) error {
			p.Thread(p.PID()).stepping = true
			return nil
		})
	})
}

// A step over pushf doesn't store the tracer's trap flag.
func TestStepHidesTrapFlag(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_step.c", "-O1"), "flags")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	steps := 0
	stop := running(t, tr, stepper(t, &steps))
	if err := stepForever(tr, p); err != nil {
		t.Fatal(err)
	}
	eventually(t, "2000 steps", func() bool {
		return counted(t, tr, &steps) > 2000
	})
	do(t, tr, func() error { return p.Detach(context.Background(), nil) })
	if out, status := g.rest(); status != 0 || out != "" {
		t.Errorf("status %d, %q", status, out)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// stepperMain is the tracer that TestKilledWhileStepping kills.
func stepperMain() {
	pid, _ := strconv.Atoi(os.Getenv("TRACEE_TEST_STEPPER"))
	tr, err := New()
	if err != nil {
		panic(err)
	}
	p, err := tr.Attach(context.Background(), pid)
	if err != nil {
		panic(err)
	}
	go func() {
		if err := stepForever(tr, p); err != nil {
			panic(err)
		}
		os.Stdout.WriteString("ready\n")
	}()
	steps := 0
	if err := tr.Run(context.Background(), stepper(nil, &steps)); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// A tracer that is killed in the middle of a step leaves one SIGTRAP behind,
// and no trap flag: the kernel takes the flag away when it calls the handler.
// Whoever steps therefore keeps a handler in the program.
func TestKilledWhileStepping(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_step.c", "-O1"), "handler")
	const rounds = 12
	for i := range rounds {
		cmd, err := otherTracer(t, "TRACEE_TEST_STEPPER="+strconv.Itoa(g.pid))
		if err != nil {
			t.Fatalf("round %d: the stepper failed: %v", i, err)
		}
		time.Sleep(time.Duration(i) * time.Millisecond / 4)
		cmd.Process.Kill()
		cmd.Wait()
		eventually(t, "no thread is stopped", func() bool { return !strings.Contains(string(threadStates(g.pid)), "t") })
		if err := syscall.Kill(g.pid, 0); err != nil {
			out, status := g.rest()
			t.Fatalf("round %d: status %d, %q", i, status, out)
		}
	}
	out, status := g.rest()
	n, _ := strconv.Atoi(strings.TrimSuffix(out, " traps"))
	if status != 0 || n == 0 || n > rounds {
		t.Errorf("status %d, %q after %d kills", status, out, rounds)
	}
}

// told is a stepper that steps three instructions at a time.
type told struct {
	recorder
	steps, ended int
	early        bool
}

func (s *told) Resumed(t *Thread) {
	s.ended++
	s.early = s.early || t.Stopped()
}

// Who keeps count of the threads that step is told that one does no more when it
// has left its stop, not before.
func TestStepsEnd(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_step.c", "-O1"), "flags")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	h := &told{}
	h.recorder = recorder{t: t, step: func(*Thread) Verdict {
		if h.steps++; h.steps%3 == 0 {
			return Resume
		}
		return Step
	}}
	stop := running(t, tr, h)
	for i := range 4 {
		if err := stepForever(tr, p); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the steps' end", func() bool {
			var n, ended int
			do(t, tr, func() error { n, ended = h.steps, h.ended; return nil })
			return n == 3*(i+1) && ended == i+1
		})
	}
	do(t, tr, func() error { return p.Detach(context.Background(), nil) })
	if out, status := g.rest(); status != 0 || out != "" {
		t.Errorf("status %d, %q", status, out)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if h.ended != 4 || h.early {
		t.Errorf("it was told %d times, in a stop: %v", h.ended, h.early)
	}
}

// A thread that blocks SIGTRAP is stepped, to an end or until it is left: the process
// keeps its action, and the thread its mask.
func TestStepBlocked(t *testing.T) {
	for _, most := range []int{300, 1 << 30} {
		g := spawn(t, fixture.Build(t, "tracee_step.c", "-O1"), "blocked")
		tr := newTracer(t)
		p := attach(t, tr, g.pid)
		eventually(t, "the thread blocks SIGTRAP", func() bool {
			var m uint64
			do(t, tr, func() error {
				return p.WithStopped(context.Background(), func([]*Thread) (err error) {
					m, err = p.Thread(g.pid).SigMask()
					return err
				})
			})
			return m&sigBit(syscall.SIGTRAP) != 0
		})
		steps := 0
		stop := running(t, tr, &recorder{t: t, step: func(*Thread) Verdict {
			if steps++; steps >= most {
				return Resume
			}
			return Step
		}})
		if err := stepForever(tr, p); err != nil {
			t.Fatal(err)
		}
		eventually(t, "300 steps", func() bool {
			return counted(t, tr, &steps) >= 300
		})
		do(t, tr, func() error { return p.Detach(context.Background(), nil) })
		if out, status := g.rest(); status != 0 || out != "" {
			t.Errorf("%d steps at most: status %d, %q", most, status, out)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// A program that sets masks under steps, each of which is begun anew as if the thread had
// been stopped before it, finds those that it has set, and keeps its action.
func TestStepMasks(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_step.c", "-O1"), "masks")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	steps := 0
	again := stepper(t, &steps)
	once := again.step
	again.step = func(th *Thread) Verdict {
		th.beginStep()
		return once(th)
	}
	stop := running(t, tr, again)
	seen := 0
	eventually(t, "8000 steps", func() bool {
		n := counted(t, tr, &steps)
		if n == seen { // a signal that was delivered has ended them
			if err := stepForever(tr, p); err != nil {
				t.Fatal(err)
			}
		}
		seen = n
		return n > 8000
	})
	do(t, tr, func() error { return p.Detach(context.Background(), nil) })
	if out, status := g.rest(); status != 0 || out != "" {
		t.Errorf("status %d, %q", status, out)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// A step whose end says TRAP_BRKPT, as virtual machines have it that lose the status
// register, is a step's end still; an int1 of the program's isn't (P47).
func TestStepUntold(t *testing.T) {
	g := spawn(t, fixture.Build(t, "tracee_step.c", "-O1"), "flags")
	tr := newTracer(t)
	p := attach(t, tr, g.pid)
	n, wrong, int1 := 0, 0, 0
	h := &recorder{t: t, step: func(th *Thread) Verdict {
		n++
		if th.readSiginfo() != nil {
			return Resume
		}
		told := th.si
		binary.LittleEndian.PutUint32(th.si[8:], trapBrkpt)
		if !th.endsStep() {
			wrong++
		}
		th.stepPlain = false // as behind an int1
		if th.untoldStep() {
			int1++
		}
		if th.si = told; n < 500 {
			return Step
		}
		return Resume
	}}
	running(t, tr, h)
	if err := stepForever(tr, p); err != nil {
		t.Fatal(err)
	}
	eventually(t, "500 steps", func() bool { return counted(t, tr, &n) >= 500 })
	do(t, tr, func() error { return p.Detach(context.Background(), nil) })
	if out, status := g.rest(); status != 0 || wrong > 0 || int1 > 0 {
		t.Errorf("status %d, %q; of %d steps %d were none, %d were an int1's", status, out, n, wrong, int1)
	}
	for _, c := range []struct {
		code   string
		itself bool
	}{{"\xf1", true}, {"\x48\xf1", true}, {"\x0f\x05", true}, {"\x31\xf1", false}, {"\x90\xf1", false}, {"\x48\x89\xf1", false}} {
		if trapsItself([]byte(c.code)) != c.itself {
			t.Errorf("% x: traps by itself: %v", c.code, !c.itself)
		}
	}
}
