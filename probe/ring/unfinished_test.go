package ring

import "testing"

// TestKeeps: an address in a record leads to it. Its position, its end and its offset do so only for a
// detour that reserves.
func TestKeeps(t *testing.T) {
	const at, data = 5<<20 + 0x4560, 0x7f00_0000_0000
	for _, size := range []uint64{40, 0} {
		u := Unfinished{At: at, Size: size, Mask: 1<<20 - 1, Data: data}
		for _, v := range []uint64{data + 0x4560, data + 0x4560 + 39} {
			if !u.Keeps(v, false) || !u.Keeps(v, true) {
				t.Errorf("size %d: %#x does not lead to it", size, v)
			}
		}
		for _, v := range []uint64{at, at + 40, 0x4560} {
			if u.Keeps(v, false) || !u.Keeps(v, true) {
				t.Errorf("size %d: %#x leads to it, or not while the room is reserved", size, v)
			}
		}
		for _, v := range []uint64{0, 1, at - 8, 0x4568, at + MaxRecord + 1, data, data + at, data + 0x4560 - 1, data + 0x4560 + MaxRecord, ^uint64(0)} {
			if u.Keeps(v, true) {
				t.Errorf("size %d: %#x leads to it", size, v)
			}
		}
	}
}

// TestUnfinished: who is to say whether a record is abandoned is told where it is, and whose.
func TestUnfinished(t *testing.T) {
	var asked []Unfinished
	x := newBench(t, 1, Options{Abandoned: func(u Unfinished) bool { asked = append(asked, u); return false }})
	x.put(t, 0, 1, 1, x.now(), "")
	wantTIDs(t, x.poll(t, false), 1)
	at := x.headOf(0)
	r, _ := x.p.Reserve(0, 5, 64)
	r.Fill(77, x.now(), nil)
	x.reserveOnly(0, 10)
	x.poll(t, false)
	x.clock.advance(2_000_000_000)
	x.poll(t, false)
	data := x.r.m.load64(x.l.RingWord(0, DataPtr))
	want := []Unfinished{
		{At: at, Size: 80, TID: 77, Mask: uint64(x.l.RingSize) - 1, Data: data},
		{At: at + 80, Mask: uint64(x.l.RingSize) - 1, Data: data},
	}
	if len(asked) != 2 || asked[0] != want[0] || asked[1] != want[1] {
		t.Errorf("asked about %+v, want %+v", asked, want)
	}
}
