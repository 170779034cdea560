package ring

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"
)

// A file with spare rings says so, and which half of them is a snapshot.
func TestSwaps(t *testing.T) {
	l := mustNew(t, Params{CPUs: 3, MaxProbes: 255, RingSize: MinOverwrite, Fallback: PageSize, Instances: PageSize, Code: PageSize, MaxMaps: 1, Sites: 1, Overwrite: true, Spare: true})
	page := (&Header{Mode: ModeDetached}).Encode(l)
	h, again, err := DecodeHeader(page)
	if err != nil || !reflect.DeepEqual(again, l) || h.Mode != ModeDetached|ModeOverwrite|ModeSpare {
		t.Fatalf("%+v, %v; want %+v", again, err, l)
	}
	le := binary.LittleEndian
	le.PutUint32(page[ModeOff:], ModeDetached|ModeOverwrite)
	if _, _, err := DecodeHeader(page); err == nil {
		t.Error("a file with spare rings is taken for one without")
	}
	rings := map[int64]bool{}
	for n := range l.NumRings() {
		rings[l.RingWord(n, HeadOff)] = true
		if want := n / l.CPUs % 2; l.half(n) != want {
			t.Errorf("ring %d is of half %d, want %d", n, l.half(n), want)
		}
	}
	if len(rings) != 4*l.CPUs || l.CPUs != 4 {
		t.Errorf("%d rings of %d CPUs", len(rings), l.CPUs)
	}
	b := make([]byte, l.Control.End())
	at := b[l.Control.Off:]
	for _, w := range []struct {
		taken, lower, upper uint64
		want                Swaps
	}{
		{0, 0, 0, Swaps{}},
		{1, 0, 0, Swaps{Taken: 1}}, // it is just being taken
		{1, 10, 0, Swaps{Taken: 1, At: 10}},
		{2, 10, 0, Swaps{Taken: 2, Half: 1, Since: 10}},
		{2, 10, 20, Swaps{Taken: 2, Half: 1, At: 20, Since: 10}},
		{3, 10, 20, Swaps{Taken: 3, Since: 20}},
		{3, 30, 20, Swaps{Taken: 3, At: 30, Since: 20}},
	} {
		le.PutUint64(at[ControlSwaps:], w.taken*uint64(l.CPUs))
		le.PutUint64(at[ControlSwapped:], w.lower)
		le.PutUint64(at[ControlSwapped+8:], w.upper)
		if got, err := ReadSwaps(bytes.NewReader(b), l); err != nil || got != w.want {
			t.Errorf("%+v, %v; want %+v", got, err, w.want)
		}
	}
	if _, err := ReadSwaps(bytes.NewReader(b[:l.Control.Off]), l); err == nil {
		t.Error("read behind the file's end")
	}
	l.Spare = false
	if got, err := ReadSwaps(bytes.NewReader(nil), l); err != nil || got != (Swaps{}) {
		t.Errorf("without spare rings: %+v, %v", got, err)
	}
}
