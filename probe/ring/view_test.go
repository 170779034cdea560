package ring

import (
	"encoding/binary"
	"testing"
)

// viewFile is a file whose rings are overwritten; before, if set, is called before each
// read.
type viewFile struct {
	b      []byte
	l      *Layout
	before func(off int64, n int)
}

func newViewFile(t *testing.T) *viewFile {
	t.Helper()
	l := mustNew(t, Params{CPUs: 1, MaxProbes: 255, RingSize: MinOverwrite, Fallback: PageSize, Instances: PageSize, Code: PageSize, MaxMaps: 1, Sites: 1, Overwrite: true})
	return &viewFile{b: make([]byte, l.Size), l: l}
}

// ReadAt implements io.ReaderAt.
func (f *viewFile) ReadAt(b []byte, off int64) (int, error) {
	if f.before != nil {
		f.before(off, len(b))
	}
	return copy(b, f.b[off:]), nil
}

func (f *viewFile) set(word int64, v uint64) {
	binary.LittleEndian.PutUint64(f.b[f.l.RingWord(0, word):], v)
}

// put writes a record of units at pos, finished or not, and gives the position behind it.
func (f *viewFile) put(pos uint64, units int, finished bool, tsc uint64) uint64 {
	b := f.b[f.l.RingData(0)+int64(pos&uint64(f.l.RingSize-1)):]
	le := binary.LittleEndian
	le.PutUint64(b, pos)
	w := StateWord(1, units)
	if finished {
		w = CommitWord(1, units)
	}
	le.PutUint32(b[StampSize:], w)
	le.PutUint64(b[StampSize+TimeOff:], tsc)
	return pos + StampSize + uint64(units)*Unit
}

// fill writes records of three units from a position on until the ring is full.
func (f *viewFile) fill(first uint64) (head uint64, n int) {
	for head = first; head+40 <= first+uint64(f.l.RingSize); n++ {
		head = f.put(head, 3, true, uint64(n)+1)
	}
	return head, n
}

func TestViewOverwritten(t *testing.T) {
	f := newViewFile(t)
	first := f.l.FirstPosition(0x123456789abcdef)
	f.set(TailOff, first)
	head, n := f.fill(first)
	f.set(HeadOff, head)
	v := NewView(f, f.l)
	list, err := v.Take(^uint64(0), false)
	if err != nil || len(list) != n || v.Unfinished != 0 {
		t.Fatalf("%d of %d records, %v, %+v", len(list), n, err, v)
	}
	// What isn't stamped is room: nothing of the lap before is seen again.
	f.set(TailOff, head)
	f.set(OverOff, uint64(n))
	f.set(HeadOff, head+80)
	if list, err = v.Take(^uint64(0), true); err != nil || len(list) != 0 || !v.Waiting() {
		t.Fatalf("%d records of room, %v", len(list), err)
	}
	// One that isn't finished hides none behind it in the end.
	f.put(f.put(head, 3, false, 0), 6, true, 9)
	f.set(HeadOff, head+40-8+56)
	if list, err = v.Take(^uint64(0), false); err != nil || len(list) != 1 || v.Unfinished != 1 {
		t.Fatalf("%d records behind one that isn't finished, %v, %+v", len(list), err, v)
	}
}

// TestViewOvertaken has the writers come by while the ring is copied: over a part of it,
// behind the part that was copied, and all round.
func TestViewOvertaken(t *testing.T) {
	for _, by := range []uint64{32, 4096, MinOverwrite - 4096, MinOverwrite, 3 * MinOverwrite} {
		f := newViewFile(t)
		first := f.l.FirstPosition(77)
		f.set(TailOff, first)
		head, n := f.fill(first)
		f.set(HeadOff, head)
		data := f.l.RingData(0)
		f.before = func(off int64, _ int) {
			if off < data || off >= data+f.l.RingSize {
				return
			}
			at := first + by/32*32
			f.set(TailOff, at)
			f.set(OverOff, by/32)
			f.set(HeadOff, max(head, at))
		}
		v := NewView(f, f.l)
		list, err := v.Take(^uint64(0), false)
		if err != nil || len(list) > n-min(n, int(by/32)) || by < MinOverwrite && len(list) != n-int(by/32) {
			t.Errorf("overtaken by %d: %d of %d records, %v", by, len(list), n, err)
		}
		if len(list) > 0 && list[0].TSC != by/32+1 {
			t.Errorf("overtaken by %d: the first is record %d", by, list[0].TSC)
		}
		if v.Overwritten != by/32 {
			t.Errorf("overtaken by %d: %d were overwritten, want %d", by, v.Overwritten, by/32)
		}
	}
}
