package probe

import (
	"fmt"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
)

// returned is a sink that checks that each function gave three times its argument and
// one, and counts the records of each event.
type returned struct {
	n    map[string]uint64
	vals []fetch.Value
	bad  int
}

// Hit implements Sink.
func (r *returned) Hit(h *Hit) error {
	var err error
	if r.vals, err = h.Program.Decode(h.Data, r.vals); err != nil {
		return err
	}
	r.n[h.Event.Name]++
	if r.vals[0].Int != 3*r.vals[1].Int+1 {
		r.bad++
	}
	return nil
}

// TestSharedExits: hundreds of functions return by the same instruction, in a program
// with an unwinder. All of them are jumps, one that never returns too, and each return
// is seen once, as that of each function that has come to it.
func TestSharedExits(t *testing.T) {
	prog := fixture.Build(t, "probe_shares.cc", "-O2", "-pthread")
	const rounds, threads = 60, 4
	args := []string{fmt.Sprint(rounds), fmt.Sprint(threads)}
	want := plain(t, prog, args...)
	defs := []string{"r:s probe_shares:s_* v=$retval x=$arg1", "r:last last v=$retval x=$arg1", "r:between between v=$retval x=$arg1",
		"r:throws throws v=$retval x=$arg1", "r:never never", "r:twice probe_shares:s_2?? v=$retval x=$arg1", "p:entry probe_shares:s_1?? x=$arg1"}
	events := map[string]uint64{"s": 300 * rounds * threads, "last": 300 * rounds * threads, "between": 100 * rounds * threads}
	events["twice"] = 100 * rounds * threads
	events["throws"] = rounds / 5 * 4 * threads
	events["last"] += events["throws"]
	places := map[string]int{"s": 300, "last": 1, "between": 1, "throws": 1, "never": 1, "twice": 100}
	for _, o := range []Options{{}, {CountOnly: true}} {
		sub := startSubject(t, prog, args...)
		sink := &returned{n: map[string]uint64{}}
		use := defs
		if !o.CountOnly {
			use = defs[:6]
		}
		l := engageInto(t, sub.pid(), o, sink, use...)
		for name, n := range places {
			if jumps, why := optimizedOf(l, name); jumps != n {
				t.Errorf("%s: %d of %d places by a jump: %s", name, jumps, n, why)
			}
		}
		if got := sub.work(); got != want {
			t.Errorf("probed, the program printed %q, otherwise %q", got, want)
		}
		l.finish(sub.pid())
		sub.end()
		for name, n := range events {
			if st := l.stat(name); st.Hits != n || st.Missed != 0 || !o.CountOnly && sink.n[name]+st.Lost != n {
				t.Errorf("%s: %+v, %d records, want %d", name, st, sink.n[name], n)
			}
		}
		if o.CountOnly {
			if st := l.stat("entry"); st.Hits != 100*rounds*threads {
				t.Errorf("entries: %+v", st)
			}
		}
		if sink.bad != 0 {
			t.Errorf("%d returns with a wrong value", sink.bad)
		}
	}
}
