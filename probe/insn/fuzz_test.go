package insn

import (
	"bytes"
	"errors"
	"testing"
)

func seeds(f *testing.F) {
	for _, s := range []string{
		"4889e5", "488d0592feffff", "c5f877c3", "62f1fd48280510000000", "8fea7810d834120000", "0f0fc89e",
		"f0480fc70b", "67e300", "d5", "660f78c00201", "f30f1efa", "ff25001000", "6666666666666666666666666666", "e8",
		"4141414141414141c5303025", // cut off behind 15 bytes
	} {
		f.Add(unhex(f, s))
	}
}

// FuzzDecode: nothing panics, lengths are in bounds, and bytes behind an
// instruction don't change it.
func FuzzDecode(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, code []byte) {
		i, err := Decode(code)
		switch {
		case err == nil:
			if i.Len < 1 || i.Len > MaxLen || int(i.Len) > len(code) {
				t.Fatalf("%d bytes of %d", i.Len, len(code))
			}
		case errors.Is(err, ErrTruncated), errors.Is(err, ErrUndefined), errors.Is(err, ErrReserved):
			if i.Len > MaxLen {
				t.Fatalf("%d bytes", i.Len)
			}
		default:
			t.Fatal(err)
		}
		Text(code, 0x1000, nil)
		i.Regs()
		i.Mem(code)
		i.Target(0, code)
		i.RIPTarget(0, code)
		samePart(t, code)
		if err != nil {
			return
		}
		exact, err := Decode(code[:i.Len])
		if err != nil || exact != i {
			t.Fatalf("alone it is %+v, %v; with more %+v", exact, err, i)
		}
		if _, err := Decode(code[:i.Len-1]); err == nil {
			j, _ := Decode(code[:i.Len-1])
			t.Fatalf("a part of it is %d bytes", j.Len)
		}
		if longer, err := Decode(append(bytes.Clone(code[:i.Len]), 0xff, 0xff)); err != nil || longer != i {
			t.Fatalf("with more behind it is %+v, %v", longer, err)
		}
	})
}

// FuzzRelocate: nothing panics; what comes out is whole instructions within
// the limits; only *RefusedError comes back.
func FuzzRelocate(f *testing.F) {
	for _, far := range []bool{false, true} {
		for _, s := range []string{"4889e5", "488d0592feffff", "e800000000", "e2fe", "7500", "ff1500100000", "62f1fd48280510000000", "ff3500000000", "8f0500000000", "f2f2f2f2f2f2f2f2f2f27810", "2e2e2e2e2e2e2e2e2e2e2eff542408"} {
			f.Add(unhex(f, s), far, far)
		}
	}
	f.Fuzz(func(t *testing.T, code []byte, far, keep bool) {
		to := uint64(0x40010000)
		if far {
			to = 0x7000_0000_0000
		}
		m, err := Relocate(code, 0x40000000, to, Options{KeepCall: keep})
		if err != nil {
			var re *RefusedError
			if !errors.As(err, &re) || re.Error() == "" {
				t.Fatalf("%v is no *RefusedError", err)
			}
			return
		}
		if len(m.Code) > MaxMoved || len(m.Points) == 0 {
			t.Fatalf("%d bytes, %d points", len(m.Code), len(m.Points))
		}
		for k, p := range m.Points {
			if int(p.Off) >= len(m.Code) {
				continue
			}
			i, err := Decode(m.Code[p.Off:])
			if err != nil {
				t.Fatalf("% x at %d: %v", m.Code, p.Off, err)
			}
			if k+1 < len(m.Points) && m.Points[k+1].Off < p.Off+uint16(i.Len) {
				t.Fatalf("% x: points %d and %d are in one instruction", m.Code, k, k+1)
			}
		}
		for off := -1; off <= len(m.Code)+1; off++ {
			m.Where(off)
		}
	})
}

// FuzzSweep: nothing panics, instructions rise and don't overlap.
func FuzzSweep(f *testing.F) {
	f.Add(unhex(f, "4889e5c30674027502ffe0ff24c500104000"), uint64(5))
	f.Fuzz(func(t *testing.T, code []byte, anchor uint64) {
		fn, err := Sweep(code, 0x1000, SweepOptions{
			Anchors: []uint64{anchor, 0x1000 + anchor%64},
			Read: func(b []byte, at uint64) error {
				if at < 0x1000 || at-0x1000+uint64(len(b)) > uint64(len(code)) {
					return ErrTruncated
				}
				copy(b, code[at-0x1000:])
				return nil
			},
		})
		if err != nil {
			return
		}
		end := uint64(0x1000)
		for at, i := range fn.All() {
			if at < end || !fn.Boundary(at) {
				t.Fatalf("%#x is before the end of the one before, %#x", at, end)
			}
			end = at + uint64(i.Len)
			before, after := fn.Around(at)
			if before > at || after <= at {
				t.Fatalf("around %#x are %#x and %#x", at, before, after)
			}
		}
		fn.Exits()
		fn.Overlaps()
		fn.IndirectJumps()
	})
}
