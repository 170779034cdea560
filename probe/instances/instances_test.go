package instances

import (
	"math/bits"
	"slices"
	"testing"

	"kprobe/symbols"
)

type (
	call = Instance[string, struct{}]
	pool = Pool[string, struct{}]
	set  = Set[string, struct{}]
)

// entered notes a call of a function by its key.
func entered(c *set, p *pool, probe string, k Key, stale func(*call) bool) *call {
	in := p.Get()
	if in == nil {
		return nil
	}
	in.Probe, in.Key, in.Slot = probe, k, symbols.Addr(k.SP-8)
	for _, dead := range c.Leave(k, stale, nil) {
		dead.Pool.Put(dead)
	}
	c.Add(in)
	return in
}

func none(*call) bool { return false }
func all(*call) bool  { return true }

func names(list []*call) (out []string) {
	for _, in := range list {
		out = append(out, in.Probe)
	}
	return out
}

// A pool gives as many as it may, and what is put back is given again, as new.
func TestPool(t *testing.T) {
	p := NewPool[string, struct{}](2)
	a, b := p.Get(), p.Get()
	if a == nil || b == nil || p.Get() != nil || p.InUse() != 2 {
		t.Fatalf("%d of 2 are in use", p.InUse())
	}
	a.Trampoline, a.Inside, a.Entry = 3, true, append(a.Entry, 1)
	p.Put(a)
	p.Put(a) // once more is nothing
	if p.InUse() != 1 {
		t.Errorf("%d are in use, want 1", p.InUse())
	}
	c := p.Get()
	if c != a || c.Trampoline != -1 || c.Inside || len(c.Entry) != 0 {
		t.Errorf("%+v is not as new", c)
	}
	for in := range p.Active() {
		p.Put(in)
	}
	if p.InUse() != 0 {
		t.Errorf("%d are in use after all were put back", p.InUse())
	}
}

// TestPoolActive: whichever instances are put back meanwhile, Active comes to all others.
func TestPoolActive(t *testing.T) {
	const n = 7
	for gone := range 1 << n {
		p := NewPool[string, struct{}](n)
		var all []*call
		for range n {
			all = append(all, p.Get())
		}
		seen := map[*call]bool{}
		for in := range p.Active() {
			if len(seen) == 0 { // at the first one
				for i := range n {
					if gone>>i&1 != 0 {
						p.Put(all[i])
					}
				}
			}
			seen[in] = true
		}
		for i, in := range all {
			if gone>>i&1 == 0 && !seen[in] {
				t.Fatalf("without %b: %d was not seen", gone, i)
			}
		}
		if left := n - bits.OnesCount(uint(gone)); p.InUse() != left {
			t.Fatalf("without %b: %d in use, want %d", gone, p.InUse(), left)
		}
	}
}

// Looks for calls that were left come ever more seldom while they find none, and again at
// once when one does.
func TestPoolLooks(t *testing.T) {
	p := NewPool[string, struct{}](1)
	var at []int
	for n := range 20 {
		if p.LookDue(false) {
			at = append(at, n)
			p.Looked(false)
		}
	}
	if want := []int{0, 2, 6, 14}; !slices.Equal(at, want) {
		t.Errorf("looked at misses %v, want %v", at, want)
	}
	for !p.LookDue(false) {
	}
	p.Looked(true)
	if !p.LookDue(false) {
		t.Error("no look at the miss after one that has found some")
	}
	if p.LookDue(true) {
		t.Error("a look though some were found without")
	}
}

// Calls with one key return with the last that was entered first; what is stale goes, with
// all that were entered after it.
func TestSetOfOneKey(t *testing.T) {
	c, p := NewSet[string, struct{}](), NewPool[string, struct{}](10)
	k := Key{PID: 1, SP: 0x1000}
	for _, n := range []string{"a", "b", "c"} {
		entered(c, p, n, k, none)
	}
	entered(c, p, "other", Key{PID: 2, SP: 0x1000}, all)
	got := names(c.Take(k, func(in *call) bool { return in.Probe != "b" }, nil))
	if want := []string{"c", "a"}; !slices.Equal(got, want) {
		t.Errorf("took %v, want %v", got, want)
	}
	entered(c, p, "d", k, none)
	entered(c, p, "e", k, func(in *call) bool { return in.Probe == "b" })
	if p.InUse() != 4 { // a and c are the taker's to put back; other and e
		t.Errorf("%d are in use", p.InUse())
	}
	if got := names(c.Take(k, all, nil)); !slices.Equal(got, []string{"e"}) {
		t.Errorf("%v are left, want e", got)
	}
	if got := c.Take(k, all, nil); len(got) != 0 {
		t.Errorf("%v were taken twice", names(got))
	}
	n := 0
	for in := range c.All {
		if n++; in.Probe != "other" {
			t.Errorf("%s is among what is left", in.Probe)
		}
	}
	if n != 1 {
		t.Errorf("%d are left, want the other process's", n)
	}
}

// Calls are found by their thread, by the return trampoline in their slot, and by their
// slot, whatever their functions take off the stack.
func TestSetFinds(t *testing.T) {
	c, p := NewSet[string, struct{}](), NewPool[string, struct{}](10)
	const sp = 0x2000
	for _, x := range []struct {
		name string
		pop  uint64
		tid  int
	}{{"plain", 0, 7}, {"pops", 16, 8}} {
		in := p.Get()
		in.Probe, in.Pop, in.TID, in.Slot, in.Key = x.name, x.pop, x.tid, sp-8, Key{PID: 1, SP: sp + x.pop}
		c.Add(in)
	}
	above := p.Get()
	above.Probe, above.Slot, above.Key = "above", sp, Key{PID: 1, SP: sp + 16} // of another slot, with the key of pops
	c.Add(above)
	if got := names(c.Of(8)); !slices.Equal(got, []string{"pops"}) {
		t.Errorf("thread 8 has made %v", got)
	}
	c.Trap(above, 5)
	if c.ByTrampoline(5) != above || c.ByTrampoline(6) != nil {
		t.Error("not found by the return trampoline")
	}
	c.Untrap(above)
	if c.ByTrampoline(5) != nil || above.Trampoline != -1 {
		t.Error("found by a return trampoline that is gone")
	}
	got := names(c.Under(1, sp, nil))
	slices.Sort(got)
	if want := []string{"plain", "pops"}; !slices.Equal(got, want) {
		t.Errorf("with that slot: %v, want %v", got, want)
	}
	c.Drop(above)
	for in := range c.All {
		t.Errorf("%s is left", in.Probe)
	}
	if p.InUse() != 2 { // those of Under are the taker's to put back
		t.Errorf("%d are in use", p.InUse())
	}
}
