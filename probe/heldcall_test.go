package probe

import (
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/engine"
)

// heldCall runs held_call.c, which is in its call of held.
type heldCall struct {
	*subject
	l *live
}

// next lets the call of held return. The program is in the next one then.
func (h *heldCall) next() {
	h.t.Helper()
	if _, err := h.in.Write([]byte("x")); err != nil {
		h.t.Fatal(err)
	}
	h.expect("done")
	h.expect("in")
}

func (h *heldCall) add(defs ...string) *Link {
	h.t.Helper()
	link, err := h.l.s.Add(h.t.Context(), parseDefs(h.t, defs...))
	if err != nil {
		h.t.Fatal(err)
	}
	return link
}

func (h *heldCall) remove(link *Link) {
	h.t.Helper()
	if err := link.Close(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

// othersTrue adds probes, which get the numbers that are free, has the call of held return, and
// checks that they have no hits but their own.
func (h *heldCall) othersTrue() {
	h.t.Helper()
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	var defs []string
	for _, n := range names {
		defs = append(defs, "p:"+n+" other")
	}
	link := h.add(defs...)
	h.next()
	for _, n := range names {
		if st := h.l.stat(n); st.Hits != 1000 {
			h.t.Errorf("%s has %d hits, want 1000", n, st.Hits)
		}
	}
	h.remove(link)
}

// TestNumberOfHeldCall removes a return probe whose call is active, and began in code that an
// earlier change had replaced: nobody else gets the probe's number before the call has returned, so
// that the return isn't a hit of another.
func TestNumberOfHeldCall(t *testing.T) {
	prog := fixture.Build(t, "held_call.c", "-O2")
	for name, o := range failModes {
		t.Run(name, func(t *testing.T) {
			sub := startSubject(t, prog)
			sub.expect("in")
			h := &heldCall{sub, attach(t, sub.pid(), o, "p:first other")}
			returns := h.add("r:back held v=$retval")
			h.next() // the call that began before the probe
			beside := h.add("p:beside held")
			h.remove(returns)
			h.remove(beside)
			h.othersTrue()
			onTracer(t, h.l, func(tg *engine.Target) error {
				if tg.Reap(t.Context()); tg.Retired.Len() != 0 {
					t.Errorf("%d removed sets are kept after the call", tg.Retired.Len())
				}
				return nil
			})
			h.l.finish(sub.pid())
			sub.end()
		})
	}
}

// TestNumberAfterFailedChange is TestNumberOfHeldCall where the change that replaced the code has
// failed, and may not have been undone.
func TestNumberAfterFailedChange(t *testing.T) {
	prog := fixture.Build(t, "held_call.c", "-O2")
	for name, o := range failModes {
		t.Run(name, func(t *testing.T) {
			sub := startSubject(t, prog)
			sub.expect("in")
			eachFailure(t, func(t *testing.T, nth int, all bool) bool {
				h := &heldCall{sub, attach(t, sub.pid(), o, "p:first other")}
				returns := h.add("r:back held v=$retval")
				h.next()
				made := failing(h.l.s.engine.Tracer, nth, all)
				beside, err := h.l.s.Add(t.Context(), parseDefs(t, "p:beside held"))
				over := *made <= nth
				failing(h.l.s.engine.Tracer, -1, false)
				if err == nil {
					h.remove(beside)
				}
				h.remove(returns)
				h.othersTrue()
				h.l.finish(sub.pid())
				return over
			})
			sub.end()
		})
	}
}
