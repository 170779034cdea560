package plan

import (
	"bytes"
	"testing"
)

// Any bytes, any sites: no panic, and what comes out keeps the rules.
func FuzzPlan(f *testing.F) {
	f.Add([]byte("\x55\x48\x89\xe5\x53\x48\x83\xec\x08\x89\xfb\x85\xff\xc3"), uint64(0x421), 8)
	f.Add([]byte("\x31\xc0\xff\xc0\xeb\xfc\x48\x8d\x80\x00\x10\x00\x00\xb9\x01\x00\x00\x00\x5b\xc3"), uint64(1), 2)
	f.Add([]byte("\x0f\x05\xcc\xf4\xe8\x00\x00\x00\x00\xc3\x90\x90\x90\x90\x90"), ^uint64(0), 0)
	f.Add(bytes.Repeat([]byte{0x90}, 40), uint64(0x10101), 40)
	f.Fuzz(func(t *testing.T, code []byte, mask uint64, tail int) {
		if len(code) > 200 {
			return
		}
		size := len(code) - max(0, tail)%(len(code)+1)
		fn := NewFunc(base, code, size, Known{
			Target: func(a uint64) bool { return a%13 == mask%17 },
			Next:   len(code),
		})
		var sites []Site
		for k, a := range fn.Sites() {
			if mask>>(k%64)&1 != 0 {
				sites = append(sites, Site{Addr: a, Room: k % 90, Trap: k%11 == 5})
			}
		}
		space := NewSpace(around1G)
		ps, err := Plan(fn, sites, space, []Range{{base + 30, base + 30 + mask%9}})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, p := range ps {
			check(t, fn, p)
			n += len(p.AllSites())
			for _, w := range writes(p) {
				if overlaps(w, []Range{{base + 30, base + 30 + mask%9}}) {
					t.Errorf("writes %#x, which is taken", w)
				}
			}
		}
		if n != len(sites) {
			t.Errorf("%d of %d sites served", n, len(sites))
		}
		disjoint(t, ps)
	})
}

func TestTacticNames(t *testing.T) {
	for _, tt := range []struct {
		tactic Tactic
		name   string
		jump   bool
	}{
		{Refused, "refused", false},
		{Breakpoint, "breakpoint", false},
		{Nop, "no-op pad", true},
		{Single, "single instruction", true},
		{Window, "guarded window", true},
		{Pun, "punned jump", true},
		{TailPad, "tail and padding", true},
		{ShortJump, "short jump", true},
		{99, "tactic 99", false},
	} {
		if tt.tactic.String() != tt.name || tt.tactic.Jump() != tt.jump {
			t.Errorf("%d: %v, %v", tt.tactic, tt.tactic, tt.tactic.Jump())
		}
	}
}
