package engine

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"kprobe/probe/plan"
	"kprobe/probe/planner"
	"kprobe/symbols"
)

func newPatchOf(p *planner.Patch) *Patch { return newPatchesOf([]*planner.Patch{p})[0] }

// TestPatches: each planned patch has a patch of its own, with its islands.
func TestPatches(t *testing.T) {
	var list []*planner.Patch
	for n := range 3*patchesAtOnce + 1 {
		p := &planner.Patch{}
		for range n % 3 {
			p = &planner.Patch{Island: p}
		}
		list = append(list, p)
	}
	seen := map[*Patch]bool{}
	for i, p := range newPatchesOf(list) {
		q := list[i]
		for ; p != nil && q != nil; p, q = p.island, q.Island {
			if p.Patch != q || seen[p] {
				t.Fatalf("patch %d is another's", i)
			}
			seen[p] = true
		}
		if p != nil || q != nil {
			t.Fatalf("patch %d has not its islands", i)
		}
	}
}

// TestEntries: a patch yields the journal entries of its writes, however many.
func TestEntries(t *testing.T) {
	var p Patch
	var want []int
	for n := range 4 {
		if got := slices.Collect(p.entries); !slices.Equal(got, want) {
			t.Errorf("the entries are %d, want %d", got, want)
		}
		p.enter(7 * n)
		want = append(want, 7*n)
	}
	for n := range p.entries {
		if n == 7 {
			break
		}
	}
}

// TestMergeStages adds stages batch by batch, and compares with sorting all of them.
func TestMergeStages(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var all, want []stage
		for range rng.IntN(6) {
			var fresh []stage
			for range rng.IntN(12) {
				fresh = append(fresh, stage{Stage: &planner.Stage{Base: symbols.Addr(rng.IntN(1000)), Size: 1}})
			}
			slices.SortFunc(fresh, byBase)
			all, want = merge(all, fresh), append(want, fresh...)
		}
		slices.SortFunc(want, byBase)
		if !slices.EqualFunc(all, want, func(a, b stage) bool { return a.Base == b.Base }) {
			t.Fatalf("%d stages are not in order", len(all))
		}
		ps := &patches{Stages: all}
		for a := symbols.Addr(0); a < 1001; a++ {
			var last stage
			for _, s := range want {
				if s.Base < a {
					last = s
				}
			}
			if got := ps.lastBelow(a); got.None() != last.None() || !got.None() && got.Base != last.Base {
				t.Fatalf("the last stage below %v is %v, want %v", a, got, last)
			}
		}
	}
}

// TestMemoryOfStages adds stages batch by batch and forgets some: the memory that they have is what the
// stages that are left need, and what was freed between them can be had again.
func TestMemoryOfStages(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		ps := newPatches()
		used := map[symbols.Addr]bool{} // by address / 16
		for range 1 + rng.IntN(4) {
			p := newPatchOf(&planner.Patch{})
			for range rng.IntN(12) {
				st := planner.Stage{Base: symbols.Addr(rng.IntN(200) * 16), Size: uint32(1 + rng.IntN(30))}
				n := symbols.Addr(st.Size+15) / 16
				if used[st.Base/16] || used[st.Base/16+n-1] {
					continue
				}
				for i := range n {
					used[st.Base/16+i] = true
				}
				p.Stages = append(p.Stages, st)
			}
			slices.SortFunc(p.Stages, func(a, b planner.Stage) int { return cmp.Compare(a.Base, b.Base) })
			ps.add([]*Patch{p})
		}
		if rng.IntN(2) == 0 {
			gone := ps.List[rng.IntN(len(ps.List))]
			for _, st := range gone.Stages {
				for i := range symbols.Addr(st.Size+15) / 16 {
					delete(used, st.Base/16+i)
				}
			}
			ps.forget(map[*Patch]bool{gone: true})
		}
		lo := uint64(rng.IntN(100) * 16)
		r := plan.Range{Lo: lo, Hi: lo + 1600}
		space := plan.NewSpace(nil)
		space.Mapped(r, ps.takenIn(r))
		got := 0
		for {
			a, ok := space.Find(plan.Want{Size: 16, Lo: r.Lo, Hi: r.Hi, Base: r.Lo, Rel: [4]plan.ByteSet{plan.AnyByte(), plan.AnyByte(), plan.AnyByte(), plan.AnyByte()}})
			if !ok {
				break
			}
			if used[symbols.Addr(a)/16] {
				t.Fatalf("%#x is free, and a stage is there", a)
			}
			got++
		}
		want := 0
		for a := r.Lo; a < r.Hi; a += 16 {
			if !used[symbols.Addr(a)/16] {
				want++
			}
		}
		if got != want {
			t.Fatalf("room for %d, want %d; taken is %x", got, want, ps.taken)
		}
	}
}
