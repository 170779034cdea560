package ring

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// TestNextShort takes records apart whose state words are those of memory files of versions up to 8.
func TestNextShort(t *testing.T) {
	word := func(id uint32, units int, committed uint32) uint32 { return id | uint32(units)<<19 | committed<<31 }
	rec := func(id uint32, data []byte) []byte {
		b := make([]byte, HeaderSize+len(data))
		binary.LittleEndian.PutUint32(b, word(id, len(b)/Unit, 1))
		binary.LittleEndian.PutUint32(b[TIDOff:], 5)
		binary.LittleEndian.PutUint64(b[TimeOff:], 77)
		copy(b[DataOff:], data)
		return b
	}
	skip := make([]byte, 2*Unit)
	binary.LittleEndian.PutUint32(skip, word(0, 2, 1))
	const mostID, mostUnits = 1<<19 - 1, 1<<12 - 1
	longest := bytes.Repeat([]byte{7}, mostUnits*Unit-HeaderSize)
	b := bytes.Join([][]byte{rec(mostID, []byte("12345678")), skip, rec(1, longest), rec(2, nil)}, nil)
	for i, want := range []Raw{{ID: mostID, TID: 5, TSC: 77, Data: []byte("12345678")}, {}, {ID: 1, TID: 5, TSC: 77, Data: longest}, {ID: 2, TID: 5, TSC: 77}} {
		r, rest, ok := NextShort(b)
		if !ok || r.ID != want.ID || r.TID != want.TID || r.TSC != want.TSC || !bytes.Equal(r.Data, want.Data) {
			t.Fatalf("record %d is of probe %d, %d bytes, %v", i, r.ID, len(r.Data), ok)
		}
		b = rest
	}
	if _, _, ok := NextShort(b); ok || len(b) > 0 {
		t.Errorf("behind the last record are %d bytes", len(b))
	}
	for what, b := range map[string][]byte{
		"not committed":    binary.LittleEndian.AppendUint64(nil, uint64(word(1, 3, 0))),
		"cut off":          rec(1, []byte("12345678"))[:HeaderSize],
		"without a length": binary.LittleEndian.AppendUint64(nil, uint64(word(1, 0, 1))),
		"without a head":   binary.LittleEndian.AppendUint64(nil, uint64(word(1, 1, 1))),
	} {
		if r, _, ok := NextShort(b); ok {
			t.Errorf("%s: a record of probe %d", what, r.ID)
		}
	}
}
