package fallbacks

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/probe/detour"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

const (
	codeAt = symbols.Addr(0x10000)
	dataAt = symbols.Addr(0x20000)
	trap   = unix.SIGTRAP
)

// process is a process as the fallback handlers see it: a page of memory, and actions.
type process struct {
	data    [Size]byte
	actions map[syscall.Signal]tracee.Sigaction
	// before runs before an action is replaced: what the program does meanwhile.
	before func()
	deny   error // of asking for actions and replacing them
	// killed has kprobe be killed at the next change of an action, before the kernel has made it, or
	// with made after.
	killed, made bool
	code         map[symbols.Addr][]byte // further pages
}

var errKilled = errors.New("killed")

func (p *process) page(b []byte, at symbols.Addr) ([]byte, error) {
	if page, ok := p.code[at&^(Size-1)]; ok {
		return page[at&(Size-1):][:len(b)], nil
	}
	if at < dataAt || at+symbols.Addr(len(b)) > dataAt+Size {
		return nil, syscall.EFAULT
	}
	return p.data[at-dataAt:][:len(b)], nil
}

func (p *process) ReadMemory(b []byte, at symbols.Addr) (int, error) {
	m, err := p.page(b, at)
	return copy(b, m), err
}

func (p *process) WriteMemory(b []byte, at symbols.Addr) error {
	m, err := p.page(b, at)
	copy(m, b)
	return err
}

func (p *process) Sigaction(_ context.Context, _ *tracee.Thread, sig syscall.Signal) (tracee.Sigaction, error) {
	return p.actions[sig], p.deny
}

func (p *process) SwapSigaction(_ context.Context, _ *tracee.Thread, sig syscall.Signal, act tracee.Sigaction, to symbols.Addr) (tracee.Sigaction, error) {
	if p.before != nil {
		p.before()
		p.before = nil
	}
	if p.deny != nil {
		return tracee.Sigaction{}, p.deny
	}
	killed := p.killed
	p.killed = false
	if killed && !p.made {
		return tracee.Sigaction{}, errKilled
	}
	old := p.actions[sig]
	p.actions[sig] = act
	if to != 0 {
		if err := p.WriteMemory(fallbackAction(old).Bytes(), to); err != nil {
			return tracee.Sigaction{}, err
		}
	}
	if killed {
		return tracee.Sigaction{}, errKilled
	}
	return old, nil
}

// handler is an action of the program's own.
func handler(n int) tracee.Sigaction {
	return tracee.Sigaction{Handler: symbols.Addr(0x400000 + n), Flags: 4, Restorer: 0x400100, Mask: uint64(n)}
}

func laid(t *testing.T) (*process, *Fallbacks) {
	t.Helper()
	p := &process{actions: map[syscall.Signal]tracee.Sigaction{}}
	n := New(p)
	code, err := n.Lay(codeAt, dataAt, Links{Table: 0x30000, Steps: 0x30100, Trampolines: 0x40000, TrampolinesSize: 64})
	if err != nil || len(code) != Size || n.Code() != codeAt || n.Data() != dataAt {
		t.Fatal(len(code), err)
	}
	return p, n
}

func catch(t *testing.T, n *Fallbacks, want bool) {
	t.Helper()
	if changed, err := n.Catch(t.Context(), nil, trap); changed != want || err != nil {
		t.Fatalf("changed is %v, %v", changed, err)
	}
}

// led is what fallback handler i leads to, as its data say.
func (p *process) led(i int) detour.Action {
	return detour.FallbackAction(p.data[i*dataStride:], int(trap))
}

// TestLay: every fallback handler is whole in its part of the page.
func TestLay(t *testing.T) {
	_, n := laid(t)
	for i, l := range n.labels {
		at := uint64(codeAt) + uint64(i*stride)
		if l.Handler != at || l.End > at+stride || l.End <= l.Restorer || l.Restorer <= l.Handler {
			t.Errorf("fallback handler %d: %+v, in [%#x, %#x)", i, l, at, at+stride)
		}
	}
	if Size != 4096 || Count*dataStride > Size {
		t.Errorf("the data take %d bytes", Count*dataStride)
	}
}

// TestChain lays fallback handlers before the handlers that a program sets, one after the
// other, and finds that each leads where it should.
func TestChain(t *testing.T) {
	p, n := laid(t)
	p.actions[trap] = handler(0)
	catch(t, n, true)
	catch(t, n, false) // it is in place
	for i := 1; i < Count; i++ {
		p.actions[trap] = handler(i)
		catch(t, n, true)
	}
	for i := range Count {
		if got, want := p.led(i), fallbackAction(handler(i)); got != want {
			t.Errorf("fallback handler %d leads to %+v, want %+v", i, got, want)
		}
		if detour.FallbackCaught(p.data[i*dataStride:]) != 1<<trap {
			t.Errorf("fallback handler %d answers %#x", i, detour.FallbackCaught(p.data[i*dataStride:]))
		}
	}
	if p.actions[trap].Handler != symbols.Addr(n.labels[Count-1].Handler) {
		t.Errorf("the action is %+v", p.actions[trap])
	}
	// A handler that a fallback handler leads to already gets that fallback handler.
	p.actions[trap] = handler(1)
	catch(t, n, true)
	if p.actions[trap].Handler != symbols.Addr(n.labels[1].Handler) {
		t.Errorf("the action is %+v", p.actions[trap])
	}
	p.actions[trap] = handler(Count)
	if changed, err := n.Catch(t.Context(), nil, trap); changed || !errors.Is(err, ErrNone) {
		t.Errorf("one too many: %v, %v", changed, err)
	}
	if p.actions[trap] != handler(Count) {
		t.Errorf("one too many: the action is %+v", p.actions[trap])
	}
	if !slices.Equal(slices.Collect(n.Signals()), []syscall.Signal{trap}) {
		t.Error("other signals are answered")
	}
}

// TestForced: the kernel has reset the fallback handler's action, and it is laid again.
func TestForced(t *testing.T) {
	p, n := laid(t)
	p.actions[trap] = handler(0)
	catch(t, n, true)
	act := p.actions[trap]
	act.Handler = 0
	p.actions[trap] = act
	catch(t, n, true)
	if p.actions[trap].Handler != symbols.Addr(n.labels[0].Handler) || p.led(0) != fallbackAction(handler(0)) {
		t.Errorf("the action is %+v, the fallback handler leads to %+v", p.actions[trap], p.led(0))
	}
}

// TestMeanwhile: what the program sets between the look and the change isn't
// lost.
func TestMeanwhile(t *testing.T) {
	p, n := laid(t)
	p.actions[trap] = handler(0)
	p.before = func() { p.actions[trap] = handler(1) }
	catch(t, n, true)
	if p.led(0) != fallbackAction(handler(1)) || p.actions[trap].Handler != symbols.Addr(n.labels[0].Handler) {
		t.Errorf("the fallback handler leads to %+v, the action is %+v", p.led(0), p.actions[trap])
	}
	// What the fallback handler leads to is known: the same handler needs no other fallback handler.
	p.actions[trap] = handler(1)
	catch(t, n, true)
	if p.actions[trap].Handler != symbols.Addr(n.labels[0].Handler) {
		t.Errorf("the action is %+v", p.actions[trap])
	}
	if chained, err := n.Remove(t.Context()); chained || err != nil || p.actions[trap] != handler(1) {
		t.Errorf("%v, %v, %+v", chained, err, p.actions[trap])
	}
	// It has put the fallback handler itself back: then nothing is to be done.
	p, n = laid(t)
	p.actions[trap] = handler(0)
	catch(t, n, true)
	fallback := p.actions[trap]
	p.actions[trap] = handler(1)
	p.before = func() { p.actions[trap] = fallback }
	catch(t, n, true)
	if p.actions[trap] != fallback || p.led(0) != fallbackAction(handler(0)) {
		t.Errorf("the action is %+v, the fallback handler leads to %+v", p.actions[trap], p.led(0))
	}
}

// TestRemove gives actions back, and says when a fallback handler may still be called.
func TestRemove(t *testing.T) {
	ignore := tracee.Sigaction{Handler: 1}
	for name, c := range map[string]struct {
		then    func(p *process, n *Fallbacks)
		chained bool
		want    tracee.Sigaction
	}{
		"in place":           {func(*process, *Fallbacks) {}, false, handler(0)},
		"a handler over it":  {func(p *process, _ *Fallbacks) { p.actions[trap] = handler(7) }, true, handler(7)},
		"ignored":            {func(p *process, _ *Fallbacks) { p.actions[trap] = ignore }, false, ignore},
		"the default":        {func(p *process, _ *Fallbacks) { p.actions[trap] = tracee.Sigaction{} }, false, tracee.Sigaction{}},
		"a thread is inside": {func(_ *process, n *Fallbacks) { n.Look(codeAt + Size - 1) }, true, handler(0)},
		"a thread is beside": {func(_ *process, n *Fallbacks) { n.Look(codeAt + Size); n.Look(codeAt - 1) }, false, handler(0)},
		"reset by the kernel": {func(p *process, _ *Fallbacks) {
			act := p.actions[trap]
			act.Handler = 0
			p.actions[trap] = act
		}, false, handler(0)},
		// SA_RESETHAND: the fallback handler has cleared what it led to.
		"used up": {func(p *process, _ *Fallbacks) {
			w := &writer{p, dataAt, nil}
			(detour.FallbackData{W: w}).SetAction(int(trap), detour.Action{})
		}, false, tracee.Sigaction{}},
		"two fallback handlers": {func(p *process, n *Fallbacks) {
			p.actions[trap] = handler(7)
			if _, err := n.Catch(t.Context(), nil, trap); err != nil {
				t.Error(err)
			}
		}, true, handler(7)},
		"two fallback handlers, ignored": {func(p *process, n *Fallbacks) {
			p.actions[trap] = handler(7)
			if _, err := n.Catch(t.Context(), nil, trap); err != nil {
				t.Error(err)
			}
			p.actions[trap] = ignore
		}, true, ignore},
	} {
		p, n := laid(t)
		p.actions[trap] = handler(0)
		catch(t, n, true)
		c.then(p, n)
		chained, err := n.Remove(t.Context())
		if chained != c.chained || err != nil || p.actions[trap] != c.want {
			t.Errorf("%s: chained is %v, %v, the action %+v", name, chained, err, p.actions[trap])
		}
	}
	p, n := laid(t)
	catch(t, n, true)
	p.deny = syscall.ESRCH
	if chained, err := n.Remove(t.Context()); !chained || !errors.Is(err, syscall.ESRCH) {
		t.Errorf("of a process that can't be asked: %v, %v", chained, err)
	}
}

// TestLook: a thread that is about to read what the data lead to begins anew, one that is
// elsewhere stays there.
func TestLook(t *testing.T) {
	_, n := laid(t)
	again := 0
	for i, l := range n.labels {
		for pc := l.Handler - 1; pc <= l.End; pc++ {
			want := pc
			for _, look := range l.Looks {
				if look[0] <= l.Handler || look[1] <= look[0] || look[1] >= l.Restorer {
					t.Fatalf("fallback handler %d: %+v", i, l)
				}
				if pc >= look[0] && pc < look[1] {
					want = l.Handler
					again++
				}
			}
			if got := n.Look(symbols.Addr(pc)); got != symbols.Addr(want) {
				t.Errorf("fallback handler %d: from %#x on at %#x, want %#x", i, pc, got, want)
			}
		}
	}
	if again == 0 {
		t.Error("no fallback handler reads anything")
	}
}

// TestFind takes over the fallback handlers of another kprobe, and a child's those of its
// parent.
func TestFind(t *testing.T) {
	p, n := laid(t)
	p.actions[trap], p.actions[unix.SIGSEGV] = handler(0), handler(1)
	catch(t, n, true)
	if _, err := n.Catch(t.Context(), nil, unix.SIGSEGV); err != nil {
		t.Fatal(err)
	}
	p.actions[trap] = handler(2)
	catch(t, n, true)
	found := New(p)
	if err := found.Find(codeAt, dataAt); err != nil {
		t.Fatal(err)
	}
	if got := found.caught[trap]; !slices.Equal(got, []detour.Action{fallbackAction(handler(0)), fallbackAction(handler(2))}) {
		t.Errorf("SIGTRAP: %+v", got)
	}
	if got := found.caught[unix.SIGSEGV]; !slices.Equal(got, []detour.Action{fallbackAction(handler(1))}) {
		t.Errorf("SIGSEGV: %+v", got)
	}
	child := *p
	child.actions = map[syscall.Signal]tracee.Sigaction{trap: p.actions[trap], unix.SIGSEGV: p.actions[unix.SIGSEGV]}
	if _, err := n.Inherited(&child).Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if child.actions[trap] != handler(2) || child.actions[unix.SIGSEGV] != handler(1) {
		t.Errorf("the child's actions are %+v", child.actions)
	}
	if p.actions[trap].Handler != symbols.Addr(n.labels[1].Handler) {
		t.Error("the parent's action was changed")
	}
	parent := *p
	parent.actions = map[syscall.Signal]tracee.Sigaction{trap: p.actions[trap], unix.SIGSEGV: p.actions[unix.SIGSEGV]}
	if _, err := n.Inherited(&parent).Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if parent.actions[trap] != handler(2) || parent.actions[unix.SIGSEGV] != handler(1) {
		t.Errorf("after a child was left, the parent is left with the actions %+v", parent.actions)
	}
	if err := found.Find(codeAt, dataAt+Size); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("data that aren't there: %v", err)
	}
	if err := n.Disconnect(); err != nil {
		t.Fatal(err)
	}
	// A fallback handler that is disconnected leads where it led.
	if p.led(0) != fallbackAction(handler(0)) || p.led(1) != fallbackAction(handler(2)) {
		t.Error("the fallback handlers have forgotten the actions")
	}
}
