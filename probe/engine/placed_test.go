package engine

import (
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
