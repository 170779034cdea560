package plan

import (
	"bytes"
	"slices"
	"testing"

	"kprobe/probe/insn"
)

// packed packs a patch with its islands.
func packed(p *Patch) *Packed {
	if p == nil {
		return nil
	}
	out := p.Pack(packed(p.Island))
	return &out
}

// starts are the offsets in Displaced at which instructions start.
func (p *Patch) starts() (out []int) {
	for off := 0; off < len(p.Displaced); {
		i, err := insn.Decode(p.Displaced[off:])
		if err != nil {
			return out // it is made of instructions
		}
		out = append(out, off)
		off += int(i.Len)
	}
	return out
}

// checkPacked checks that packing a patch loses nothing that is asked of it later.
func checkPacked(t testing.TB, p *Patch) {
	t.Helper()
	for q, k := p, packed(p); q != nil; q, k = q.Island, k.Island {
		if k.At != q.At || k.Detour != q.Detour || int(k.Room) != q.Room || k.Tactic != q.Tactic || k.Lock() != max(q.Lock, q.At) || k.End() != q.End() {
			t.Errorf("%#x, %v: packed it is %+v, was %+v", q.At, q.Tactic, k, q)
		}
		if !bytes.Equal(k.Displaced(), q.Displaced) {
			t.Errorf("%#x, %v: packed it displaces %x, not %x", q.At, q.Tactic, k.Displaced(), q.Displaced)
		}
		if got := slices.Collect(k.Guards()); !slices.Equal(got, q.Guards) || k.CountGuards() != len(got) {
			t.Errorf("%#x, %v: packed it has the guards %v, not %v", q.At, q.Tactic, got, q.Guards)
		}
		var sites []uint64
		for n := range int(k.sites) {
			sites = append(sites, k.site(n))
		}
		if !slices.Equal(sites, q.Sites) || len(sites) > 0 && k.Site() != sites[0] {
			t.Errorf("%#x, %v: packed it serves %x, not %x", q.At, q.Tactic, sites, q.Sites)
		}
		checkReplaced(t, q, k)
		if (k.Island == nil) != (q.Island == nil) {
			t.Fatalf("%#x, %v: packed it has the island %v", q.At, q.Tactic, k.Island)
		}
	}
}

// checkReplaced checks the writes of a packed patch, before and after it learns what they replace.
func checkReplaced(t testing.TB, q *Patch, k *Packed) {
	t.Helper()
	var outside []byte
	for round := range 3 {
		n := 0
		for i, w := range k.Writes() {
			if i != n || w.At != q.Writes[i].At || !bytes.Equal(w.Bytes, q.Writes[i].Bytes) || w.Last != (i == len(q.Writes)-1) {
				t.Errorf("%#x, %v: packed write %d is %+v, not %+v", q.At, q.Tactic, n, w, q.Writes[i])
			}
			want := bytes.Repeat([]byte{byte(round*16 + i)}, len(w.Bytes))
			if k.Displaces(w.Write) {
				want = q.Displaced[w.At-q.At:][:len(w.Bytes)]
			} else if round == 0 {
				want = nil
			}
			if !bytes.Equal(w.Old, want) {
				t.Errorf("%#x, %v: packed write %d replaces %x, want %x", q.At, q.Tactic, i, w.Old, want)
			}
			n++
		}
		if last, ok := k.LastWrite(); ok != (n > 0) || n != len(q.Writes) || ok && last.At != q.Writes[n-1].At {
			t.Errorf("%#x, %v: packed it has %d writes, the last %+v, want %+v", q.At, q.Tactic, n, last, q.Writes)
		}
		outside = outside[:0]
		for i, w := range k.Writes() {
			if !k.Displaces(w.Write) {
				outside = append(outside, bytes.Repeat([]byte{byte((round+1)*16 + i)}, len(w.Bytes))...)
			}
		}
		k.Replaces(outside)
	}
}
