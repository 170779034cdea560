package detour

import (
	"encoding/binary"
	"slices"
	"testing"
)

// What the tracer does with a row of several calls.
func TestOwners(t *testing.T) {
	k, err := NewCommonCalls(0x7000_0000, 0, 256)
	if err != nil {
		t.Fatal(err)
	}
	const row = 5
	le := binary.LittleEndian
	fresh := func(first uint32, further ...uint32) []byte {
		mem := make([]byte, k.Size())
		le.PutUint64(mem[k.offset(row):], 0x1230)
		le.PutUint32(mem[k.offset(row)+callTID:], 77)
		le.PutUint32(mem[k.offset(row+1)-ownerBefore:], first)
		le.PutUint32(mem[k.offset(row+1)-moreBefore:], uint32(len(further)))
		for i, id := range further {
			le.PutUint32(mem[k.offset(row)+callEntry+4*i:], id)
		}
		return mem
	}
	mem := fresh(anywhere|7, anywhere|8, anywhere|9)
	if ids := k.OwnersOf(mem, row); !slices.Equal(ids, []uint32{9, 8, 7}) {
		t.Errorf("owners %d", ids)
	}
	for id, is := range map[uint32]bool{7: true, 8: true, 9: true, 10: false} {
		if k.Owner(mem, row, id) != is {
			t.Errorf("owner %d: %v", id, !is)
		}
	}
	for id, at := range map[uint32]int{8: k.offset(row) + callEntry, 7: k.offset(row+1) - ownerBefore} {
		was := slices.Clone(mem)
		words, left := k.Disown(mem, row, id)
		if !left || k.Owner(mem, row, id) || !slices.Equal(words, []uint64{k.Addr + uint64(at)}) {
			t.Errorf("%d is not taken out: %d, at %#x", id, k.OwnersOf(mem, row), words)
		}
		if le.PutUint32(was[at:], Nobody); !slices.Equal(was, mem) { // other threads change the rest of the row
			t.Errorf("%d: more than its owner has changed", id)
		}
	}
	if _, left := k.Disown(mem, row, 9); left || !slices.Equal(k.OwnersOf(mem, row), []uint32{9, 0, 0}) {
		t.Errorf("the last call is taken out: %d", k.OwnersOf(mem, row))
	}
	mem = fresh(3)
	if _, left := k.Disown(mem, row, 3); left || !k.Owner(mem, row, 3) {
		t.Error("the only call is taken out")
	}

	mem = fresh(anywhere|7, anywhere|8, anywhere|9)
	words, left := k.Gone(mem, row, func(id uint32) bool { return id != 8 })
	end := k.Addr + uint64(k.offset(row+1))
	want := []uint64{k.Addr + uint64(k.offset(row)) + callEntry + 4, end - ownerBefore}
	if !left || !slices.Equal(words, want) {
		t.Errorf("gone at %#x, left %v; want %#x", words, left, want)
	}
	for _, at := range words {
		le.PutUint32(mem[at-k.Addr:], Nobody)
	}
	if words, left := k.Gone(mem, row, func(id uint32) bool { return id == 8 }); left || len(words) != 1 {
		t.Errorf("gone at %#x, left %v", words, left)
	}
	le.PutUint32(mem[k.offset(row)+callTID:], 0)
	if words, left := k.Gone(mem, row, func(uint32) bool { return true }); !left || len(words) != 0 {
		t.Errorf("gone in a row that is just being taken: at %#x, left %v", words, left)
	}
}

// TestPassRows: of the rows with a slot, those that pass are told from those that are to be freed, and nothing but the mark
// changes of the first.
func TestPassRows(t *testing.T) {
	k, err := NewCommonCalls(0x7000_0000, 0, 256)
	if err != nil {
		t.Fatal(err)
	}
	const slot, back = 0x1230, 0x5550
	first := k.firstRow(slot)
	le := binary.LittleEndian
	mem := make([]byte, k.Size())
	for i, tid := range []uint32{77 | passedOn, 77} {
		at := k.offset(first + i)
		le.PutUint64(mem[at+callSlot:], slot)
		le.PutUint64(mem[at+callReturn:], back)
		le.PutUint32(mem[at+callTID:], tid)
		le.PutUint32(mem[at+callReach:], 1)
	}
	was := slices.Clone(mem)
	marked, free := k.Pass(mem, slot, back, Arrives)
	if !slices.Equal(marked, []int{first}) || !slices.Equal(free, []int{first + 1}) {
		t.Errorf("marks of rows %d change, and rows %d are free; want %d and %d", marked, free, first, first+1)
	}
	if was[k.Mark(first)-k.Addr] = k.Marked(mem, first); was[k.Mark(first)-k.Addr] != 0 || !slices.Equal(was[:k.offset(first+1)], mem[:k.offset(first+1)]) {
		t.Error("more than the mark has changed")
	}
}
