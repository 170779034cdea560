package engine

import (
	"testing"

	"kprobe/probe/planner"
	"kprobe/symbols"
)

// TestSpotShown: a place has the same name in results while it is probed and after that.
func TestSpotShown(t *testing.T) {
	lib := &symbols.Module{Name: "libx.so"}
	fn := &symbols.Func{Symbol: symbols.Symbol{Name: "_ZN2ns1fEi"}}
	for _, w := range []symbols.Site{
		{Addr: 0x7100, Module: lib, Func: new(symbols.Func)},
		{Addr: 0x7100, Module: lib, Func: fn},
		{Addr: 0x711a, Module: &symbols.Module{Name: "prog", Main: true}, Func: fn, Offset: 0x1a},
		{Addr: 0x711a, Module: lib, Func: fn, Offset: 0x1a, Named: "alias+0x1a"},
	} {
		p := &Placed{Probe: planner.Probe{Where: &w}}
		want := spotName{place: w.Name()}
		if !w.Module.Main {
			want.module = w.Module.Name
		}
		for range 2 {
			if got := p.shown(); got != want {
				t.Errorf("probed: %v, want %v", got, want)
			}
			if got := p.spot().shown(); got != want {
				t.Errorf("removed: %v, want %v", got, want)
			}
		}
	}
}
