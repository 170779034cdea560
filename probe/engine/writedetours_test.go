package engine

import (
	"testing"

	"kprobe/probe/plan"
	"kprobe/probe/planner"
	"kprobe/symbols"
)

// TestDetoursBeside: detours are written together only where nothing else can lie between them.
func TestDetoursBeside(t *testing.T) {
	patch := func(at symbols.Addr, size uint32) *Patch {
		return newPatchOf(&planner.Patch{Stages: []planner.Stage{{Base: at, Size: size}}})
	}
	fresh := []plan.Range{{Lo: 0x1000, Hi: 0x2000}, {Lo: 0x2000, Hi: 0x40000}}
	for _, c := range []struct {
		name string
		list []*Patch
		want bool
	}{
		{"neighbours", []*Patch{patch(0x1000, 0x30), patch(0x1030, 0x20)}, true},
		{"the largest gap", []*Patch{patch(0x1000, 0x30), patch(0x1030+detourGap, 0x20)}, true},
		{"a larger gap", []*Patch{patch(0x1000, 0x30), patch(0x1031+detourGap, 0x20)}, false},
		{"memory that holds others", []*Patch{patch(0x800, 0x30), patch(0x830, 0x20)}, false},
		{"into other memory", []*Patch{patch(0x1fc0, 0x30), patch(0x1ff0, 0x20)}, false},
		{"behind fresh memory", []*Patch{patch(0x3ffc0, 0x30), patch(0x3fff0, 0x20)}, false},
		{"one over the other", []*Patch{patch(0x1000, 0x30), patch(0x1020, 0x20)}, false},
		{"too much at once", []*Patch{patch(0x2000, detoursMost), patch(0x2000+detoursMost, 0x20)}, false},
	} {
		if got := beside(laidOut(c.list), fresh); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	tg := &Target{}
	two := newPatchOf(&planner.Patch{Stages: []planner.Stage{{Base: 0x1010}, {Base: 0x1014}}})
	var texts planner.Texts
	texts.Keep(two.Patch, 0, []byte{1, 2})
	texts.Keep(two.Patch, 1, []byte{3})
	got := tg.appendDetour([]byte{9}, 0x100e, two)
	if want := "\x09\xcc\x01\x02\xcc\xcc\x03"; string(got) != want {
		t.Errorf("%x, want %x", got, want)
	}
}
