package fallbacks

import (
	"testing"

	"kprobe/probe/detour"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// The fallback handlers of several kprobes, in the order in which they came.
func stacked(t *testing.T, first tracee.Sigaction, kprobes int) (*process, []*Fallbacks) {
	t.Helper()
	p, _ := laid(t)
	p.actions[trap] = first
	p.code = map[symbols.Addr][]byte{}
	var list []*Fallbacks
	for i := range kprobes {
		at := symbols.Addr(0x100000 * (i + 1))
		p.code[at+Size] = make([]byte, Size)
		n := New(p)
		text, err := n.Lay(at, at+Size, Links{Table: 0x30000})
		if err != nil {
			t.Fatal(err)
		}
		p.code[at] = text
		catch(t, n, true)
		list = append(list, n)
	}
	return p, list
}

// TestRemoveUnder: the fallback handlers of several kprobes go in any order, and none stays; what a thread
// may be in stays, and what the program's own handler may call.
func TestRemoveUnder(t *testing.T) {
	for _, first := range []tracee.Sigaction{{}, {Handler: 1}, handler(3)} {
		for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			p, list := stacked(t, first, len(order))
			for _, i := range order {
				list[i].See(0x5000)
				if chained, err := list[i].Remove(t.Context()); chained || err != nil || len(list[i].caught) > 0 {
					t.Errorf("%v: %d: chained is %v, %v", order, i, chained, err)
				}
				delete(p.code, list[i].code) // nothing leads there
				delete(p.code, list[i].data)
			}
			if p.actions[trap] != first {
				t.Errorf("%v: then the action is %+v, it was %+v", order, p.actions[trap], first)
			}
		}
	}
	for name, prepare := range map[string]func(p *process, under, over *Fallbacks){
		"not looked":     func(*process, *Fallbacks, *Fallbacks) {},
		"a thread is in": func(_ *process, under, over *Fallbacks) { under.See(over.code + 8) },
		"a handler between": func(p *process, under, over *Fallbacks) {
			under.See()
			detour.FallbackData{W: &writer{p, over.data, nil}}.SetAction(int(trap), fallbackAction(handler(4)))
		},
		"other code": func(p *process, under, over *Fallbacks) { under.See(); p.code[over.code][100]++ },
		"called twice": func(p *process, under, _ *Fallbacks) {
			under.See()
			under.caught[trap] = append(under.caught[trap], fallbackAction(handler(4)))
		},
	} {
		p, list := stacked(t, handler(3), 2)
		prepare(p, list[0], list[1])
		before := leads(list[1])
		chained, err := list[0].Remove(t.Context())
		if !chained || err != nil {
			t.Errorf("%s: chained is %v, %v", name, chained, err)
		}
		if now := leads(list[1]); now != before && name != "called twice" {
			t.Errorf("%s: what is above leads to %+v, and did to %+v", name, now, before)
		}
	}
}

// leads is what the first of some fallback handlers leads to.
func leads(n *Fallbacks) detour.Action {
	act, _ := n.leadsTo(0, trap)
	return act
}
