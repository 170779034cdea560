package fallbacks

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// found has a later kprobe find the fallback handlers.
func found(t *testing.T, p *process) *Fallbacks {
	t.Helper()
	n := New(p)
	if err := n.Find(codeAt, dataAt); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestKilledAtChange kills kprobe before and after the kernel makes each change of an action, also
// the later kprobe that removes what there is: a fallback handler that can't be called doesn't stay.
func TestKilledAtChange(t *testing.T) {
	for _, c := range []struct {
		name     string
		removing bool // it is killed as it gives the action back
		made     bool
		over     bool // the program sets a handler after that
		chained  bool
	}{
		{"before it is the action", false, false, false, false},
		{"before it is the action, and a handler is set", false, false, true, false},
		{"after it is the action", false, true, false, false},
		{"after it is the action, and a handler is set over it", false, true, true, true},
		{"before the action is given back", true, false, false, false},
		{"before the action is given back, and a handler is set over it", true, false, true, true},
		{"after the action is given back", true, true, false, false},
		{"after the action is given back, and a handler is set", true, true, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, n := laid(t)
			p.actions[trap], p.actions[unix.SIGSEGV] = handler(0), handler(1)
			if c.removing {
				catch(t, n, true)
			}
			p.killed, p.made = true, c.made
			var err error
			if c.removing {
				_, err = n.Remove(t.Context())
			} else {
				_, err = n.Catch(t.Context(), nil, trap)
			}
			if !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			want := handler(0)
			if c.over {
				want = handler(2)
				p.actions[trap] = want
			}
			for _, made := range []bool{false, true} { // the next is killed, too, if it changes anything
				p.killed, p.made = true, made
				if _, err := found(t, p).Remove(t.Context()); err != nil && !errors.Is(err, errKilled) {
					t.Fatal(err)
				}
				p.killed = false
			}
			chained, err := found(t, p).Remove(t.Context())
			if chained != c.chained || err != nil || p.actions[trap] != want {
				t.Errorf("chained is %v, %v, the action %+v", chained, err, p.actions[trap])
			}
		})
	}
}

// A fallback handler that was never the action leaves its place to the next.
func TestKilledLeavesRoom(t *testing.T) {
	p, n := laid(t)
	p.actions[trap] = handler(0)
	catch(t, n, true)
	n.taken = true
	for i := range 3 * Count {
		p.actions[trap] = handler(i % 2)
		p.killed, p.made = true, false
		_, err := n.Catch(t.Context(), nil, trap)
		p.killed = false
		if err != nil && !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		n = found(t, p)
		n.Adopted()
		if chained, err := n.Remove(t.Context()); !chained || err != nil {
			t.Fatal(chained, err)
		}
		if len(n.caught[trap]) > 2 || !n.room() {
			t.Fatalf("round %d: %+v", i, n.caught[trap])
		}
	}
}

// TestBeyond: a kprobe that goes gives the program its own action back, not that of fallback handlers
// that another has left and that lead nowhere else.
func TestBeyond(t *testing.T) {
	const upper = symbols.Addr(0x100000)
	for name, free := range map[string]bool{"left": true, "in use": false} {
		p, n := laid(t)
		p.actions[trap] = handler(0)
		catch(t, n, true)
		under := p.actions[trap]
		if free {
			if err := n.Disconnect(); err != nil {
				t.Fatal(err)
			}
		}
		// The fake has one page of data: of the left ones.
		act := fallbackAction(under)
		left := Fallbacks{proc: p, code: codeAt, data: codeAt + Size}
		p.code = map[symbols.Addr][]byte{codeAt: left.assemble(), codeAt + Size: p.data[:]}
		got := (&Fallbacks{proc: p, code: upper, data: upper + Size}).beyond(trap, act)
		want := act
		if free {
			want = fallbackAction(handler(0))
		}
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	// Its own are about to be.
	p, n := laid(t)
	p.actions[trap] = handler(0)
	catch(t, n, true)
	if got := n.beyond(trap, fallbackAction(p.actions[trap])); got != fallbackAction(handler(0)) {
		t.Errorf("its own: %+v", got)
	}
	for _, a := range []tracee.Sigaction{{}, {Handler: 1}, handler(3)} {
		if got := n.beyond(trap, fallbackAction(a)); got != fallbackAction(a) {
			t.Errorf("%+v: %+v", a, got)
		}
	}
}

// A handler that the program sets while its action is given back stays.
func TestSetWhileGivenBack(t *testing.T) {
	p, n := laid(t)
	p.actions[trap] = handler(0)
	catch(t, n, true)
	p.before = func() { p.actions[trap] = handler(5) }
	if chained, err := n.Remove(t.Context()); !chained || err != nil || p.actions[trap] != handler(5) {
		t.Errorf("chained is %v, %v, the action %+v", chained, err, p.actions[trap])
	}
}
