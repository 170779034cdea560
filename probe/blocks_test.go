package probe

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/results"
)

// blockTaker is a sink that makes hits of blocks on a goroutine of its own, and wants a
// number of hits.
type blockTaker struct {
	want   int
	blocks chan results.Block
	most   []int // of each block
	taken  int
	single int // came by Hit
}

func (b *blockTaker) Hit(*Hit) error {
	b.single++
	b.taken++
	return b.enough()
}

func (b *blockTaker) Block(block results.Block) (int, error) {
	n := min(block.Len(), b.want-b.taken)
	b.taken += n
	b.most = append(b.most, n)
	b.blocks <- block
	return n, b.enough()
}

func (b *blockTaker) enough() error {
	if b.taken == b.want {
		return ErrStop
	}
	return nil
}

// TestBlocks: a sink that takes blocks gets every hit once, in order of time, with the
// values of its own record, however late it asks for them, and what it doesn't want any
// more is no hit of the trace.
func TestBlocks(t *testing.T) {
	prog := fixture.Build(t, "probe_calls.c", "-O1", "-pthread")
	const calls = 20000
	for _, want := range []int{2 * calls, calls/2 + 7} {
		sub := startSubject(t, prog, "tail", fmt.Sprint(calls))
		s, err := Attach(t.Context(), []int{sub.pid()}, Options{Log: testLog(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close(context.Background()) })
		if err := s.Arm(t.Context(), parseDefs(t, "p:in tail_a x=$arg1:u64 at=$time:u64", "r:out tail_a x=$arg1:u64 at=$time:u64")); err != nil {
			t.Fatal(err)
		}
		sink := &blockTaker{want: want, blocks: make(chan results.Block, 4*calls)}
		var sum Summary
		var over sync.WaitGroup
		over.Go(func() { sum, err = s.Run(t.Context(), sink) })
		sub.work()
		over.Wait() // as the sink has enough
		close(sink.blocks)
		if err != nil || sink.taken != want || sink.single != 0 {
			t.Errorf("%v; %d of %d hits, %d by themselves", err, sink.taken, want, sink.single)
		}
		last, n := uint64(0), 0
		for b := range sink.blocks {
			left := sink.most[0]
			sink.most = sink.most[1:]
			if err := b.Each(func(h *Hit) error {
				if left--; left < 0 {
					return ErrStop
				}
				vals, err := h.Program.Decode(h.Data, nil)
				if err != nil {
					return err
				}
				if h.Time < last || vals[1].Int > h.Time+1 || h.PID != sub.pid() || h.Space == nil {
					t.Fatalf("hit %d is at %d, behind one at %d, and says %d: %+v", n, h.Time, last, vals[1].Int, h)
				}
				if h.Event.Return != (h.RetIP != 0) || h.Event.Return != (h.Func != "") {
					t.Fatalf("hit %d of %s returns to %#x", n, h.Event.Name, h.RetIP)
				}
				last = h.Time
				n++
				return nil
			}); err != nil && left >= 0 {
				t.Fatal(err)
			}
			b.Over()
		}
		if n != want {
			t.Errorf("%d hits of %d were in blocks", n, want)
		}
		recorded := uint64(0)
		for _, st := range sum.Stats {
			if recorded += st.Recorded; st.Hits != st.Recorded+st.Filtered+st.Lost {
				t.Errorf("%d hits, %d recorded, %d lost", st.Hits, st.Recorded, st.Lost)
			}
		}
		if recorded != uint64(want) {
			t.Errorf("%d were recorded, %d wanted", recorded, want)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		checkClean(t, sub.pid())
		sub.end()
	}
}
