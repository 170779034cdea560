package output

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"kprobe/probe/results"
)

// hitBlock is a block whose hits are made when they are asked for.
type hitBlock struct {
	hits  []results.Hit
	spent *atomic.Int64
}

func (b *hitBlock) Len() int { return len(b.hits) }

func (b *hitBlock) Each(f func(h *results.Hit) error) error {
	for _, h := range b.hits {
		h.Data = slices.Clone(h.Data)
		err := f(&h)
		clear(h.Data) // it was valid so long
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *hitBlock) Over() {
	clear(b.hits)
	b.spent.Add(1)
}

// Blocks of all sizes and hits between them are written as one formatter would, in order,
// and every block comes back.
func TestBlocksInOrder(t *testing.T) {
	entry, back := busy(t)
	for _, workers := range []int{0, 1, 3} {
		for _, form := range []Form{Text, JSON} {
			var want bytes.Buffer
			got := &sometimes{}
			w := NewWriter(got)
			tr := &Trace{Writer: w, Format: Formatter{Form: form}, Workers: workers}
			one := Formatter{Form: form}
			rnd := rand.New(rand.NewPCG(2, uint64(form)))
			var spent atomic.Int64
			at := uint64(1e9)
			hit := func() results.Hit {
				h := *entry
				if rnd.IntN(3) == 0 {
					h = *back
				}
				at += rnd.Uint64N(2 * calm)
				h.Time = at
				line, err := one.Append(nil, &h)
				if err != nil {
					t.Fatal(err)
				}
				want.Write(line)
				return h
			}
			const blocks = 200
			all := uint64(0)
			for range blocks {
				b := &hitBlock{spent: &spent}
				for range 1 + rnd.IntN(4*fewHits) {
					b.hits = append(b.hits, hit())
				}
				n := b.Len()
				if taken, err := tr.Block(b); err != nil || taken != n {
					t.Fatalf("%d of %d taken: %v", taken, n, err)
				}
				all += uint64(n)
				for range rnd.IntN(3) {
					h := hit()
					if err := tr.Hit(&h); err != nil {
						t.Fatal(err)
					}
					all++
				}
			}
			if err := errors.Join(tr.Close(), w.Close()); err != nil {
				t.Fatal(err)
			}
			if tr.Printed() != all || spent.Load() != blocks || !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Errorf("%d workers: %d of %d printed, %d blocks came back; %d bytes, want %d", workers, tr.Printed(), all, spent.Load(), got.Len(), want.Len())
			}
		}
	}
}

// Limit ends a trace in the midst of a block, and what comes behind isn't taken.
func TestBlocksLimit(t *testing.T) {
	entry, _ := busy(t)
	for _, workers := range []int{0, 2} {
		var got bytes.Buffer
		w := NewWriter(&got)
		tr := &Trace{Writer: w, Workers: workers, Limit: 130}
		var spent atomic.Int64
		var taken []int
		for {
			n, err := tr.Block(&hitBlock{hits: slices.Repeat([]results.Hit{*entry}, 60), spent: &spent})
			taken = append(taken, n)
			if err == nil {
				continue
			}
			if !errors.Is(err, results.ErrStop) {
				t.Fatal(err)
			}
			if len(taken) == 4 {
				break
			}
		}
		if err := errors.Join(tr.Close(), w.Close()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(taken, []int{60, 60, 10, 0}) || bytes.Count(got.Bytes(), []byte{'\n'}) != 130 || spent.Load() != 4 {
			t.Errorf("%d workers: taken were %v, %d blocks came back, %d lines", workers, taken, spent.Load(), bytes.Count(got.Bytes(), []byte{'\n'}))
		}
	}
}

// A failure comes back from a later block, and what was formatted before a record that is
// cut is written.
func TestBlocksFail(t *testing.T) {
	entry, _ := busy(t)
	full := errors.New("the disk is full")
	var spent atomic.Int64
	for _, workers := range []int{0, 2} {
		tr := &Trace{Writer: NewWriter(writerFunc(func(p []byte) (int, error) { return 0, full })), Workers: workers}
		spent.Store(0)
		var err error
		given := int64(0)
		for ; err == nil; given++ {
			_, err = tr.Block(&hitBlock{hits: slices.Repeat([]results.Hit{*entry}, 60), spent: &spent})
		}
		_ = tr.Close() // says the same, if a worker has met it
		if !errors.Is(err, full) || spent.Load() != given {
			t.Errorf("%d workers: %v; %d of %d blocks came back", workers, err, spent.Load(), given)
		}
		var got bytes.Buffer
		w := NewWriter(&got)
		tr = &Trace{Writer: w, Workers: workers}
		bad := *entry
		bad.Data = bad.Data[:1]
		hits := append(slices.Repeat([]results.Hit{*entry}, 2*fewHits), bad, *entry)
		_, err = tr.Block(&hitBlock{hits: hits, spent: &spent})
		if err = errors.Join(err, tr.Close()); err == nil {
			t.Errorf("%d workers: a record that is cut was printed", workers)
		}
		if err := w.Close(); err != nil || bytes.Count(got.Bytes(), []byte{'\n'}) != 2*fewHits {
			t.Errorf("%d workers: %v; written were:\n%s", workers, err, &got)
		}
	}
}
