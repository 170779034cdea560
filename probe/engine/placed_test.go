package engine

import (
	"slices"
	"testing"

	"kprobe/probe/assess"
	"kprobe/probe/planner"
)

// TestRareIsReadMeanwhile: what few probes have is read by others while the engine changes the requests by which the
// probe is armed. The race detector sees whether they meet.
func TestRareIsReadMeanwhile(t *testing.T) {
	p := &Placed{}
	p.rarer().user = &Handlers{}
	const rounds = 1000
	read := make(chan int)
	go func() {
		n := 0
		for range rounds {
			if p.user() != nil && p.data() == nil {
				n++
			}
		}
		read <- n
	}()
	at := new(assess.Place)
	for range rounds {
		p.want(p.request(at, planner.Return))
		p.want(p.request(at, planner.LoneExit))
		p.forgetWants()
	}
	if n := <-read; n != rounds {
		t.Errorf("its handlers were there %d times of %d", n, rounds)
	}
}

// TestWants: a probe yields the requests by which it is armed, in order, whether they are one or several and
// whatever is known of them.
func TestWants(t *testing.T) {
	for _, kinds := range [][]planner.Kind{
		nil, {planner.Entry}, {planner.Return}, {planner.Return, planner.Exit, planner.Exit}, {planner.LoneExit, planner.LoneExit}, {planner.LoneExit},
	} {
		for _, pop := range []uint16{0, 8} {
			p := newPlaced(nil, nil, nil, planner.Probe{})
			var want []planner.Request
			for _, k := range kinds {
				w := planner.Request{Place: &assess.Place{}, P: &p.Probe, Kind: k, Pop: pop}
				p.want(w)
				want = append(want, w)
			}
			if got := slices.Collect(p.wants); !slices.Equal(got, want) {
				t.Errorf("%v, %d bytes are popped: %v, want %v", kinds, pop, got, want)
			}
			if p.rare != nil && len(kinds) == 1 && pop == 0 {
				t.Errorf("%v: the one request is kept with what few probes have", kinds)
			}
			exit := planner.Request{Place: &assess.Place{}, P: &p.Probe, Kind: planner.Exit}
			p.ByExits = &planner.ExitWay{Exits: []planner.Request{exit}}
			if got := slices.Collect(p.patched); !slices.Equal(got, append(want, exit)) {
				t.Errorf("%v with an exit: %v", kinds, got)
			}
			p.forgetWants()
			if got := slices.Collect(p.wants); len(got) > 0 {
				t.Errorf("%v: %v after they were forgotten", kinds, got)
			}
		}
	}
}
