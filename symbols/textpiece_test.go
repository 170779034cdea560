package symbols

import (
	"bytes"
	"debug/elf"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// countedReads counts reads.
type countedReads struct {
	r io.ReaderAt
	n *atomic.Int64
}

func (c countedReads) ReadAt(b []byte, off int64) (int, error) {
	c.n.Add(1)
	return c.r.ReadAt(b, off)
}

// TestTextPieces reads a program's code in order and out of order, in many goroutines, up to the end of
// each segment: it is the file's.
func TestTextPieces(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(self)
	if err != nil {
		t.Fatal(err)
	}
	var reads atomic.Int64
	f.im.r = countedReads{bytes.NewReader(whole), &reads}
	for _, s := range f.im.segments {
		if s.flags&elf.PF_X == 0 {
			continue
		}
		check := func(at, n uint64) {
			got, err := f.Text(s.vaddr+Vaddr(at), int(n))
			want := whole[uint64(s.off)+at : uint64(s.off)+min(at+n, s.filesz)]
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes at %#x of %#x: %d bytes, %v", n, at, s.filesz, len(got), err)
			}
		}
		steps := min(s.filesz, 8<<20) / 200
		for i := range steps {
			check(i*200, 300)
			if i >= steps/2 { // a second one goes through the first half, and looks around
				check((i-steps/2)*200, 300)
				check(rand.Uint64N(s.filesz), 1)
				reads.Add(-1)
			}
		}
		if most := int64(steps*200/pieceSize*3 + 32); reads.Load() > most {
			t.Errorf("%d reads for %d bytes in order, want at most %d", reads.Load(), steps*200, most)
		}
		check(s.filesz-1, 1)
		check(s.filesz-100, 1000)
		check(s.filesz-1, 1000)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				at := uint64(0)
				for range 3000 {
					if at += rand.Uint64N(500); rand.IntN(50) == 0 || at >= s.filesz {
						at = rand.Uint64N(s.filesz)
					}
					check(at, 1+rand.Uint64N(1000))
				}
			})
		}
		wg.Wait()
	}
}
