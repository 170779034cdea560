package dwread

import (
	"encoding/binary"
	"slices"
	"testing"
)

// TestNumbers reads LEB128 at the edges of 64 bits, and longer than that.
func TestNumbers(t *testing.T) {
	for _, v := range []uint64{0, 1, 127, 128, 16383, 16384, 1<<63 - 1, 1 << 63, ^uint64(0)} {
		b := binary.AppendUvarint(nil, v)
		r := At(b, 0)
		if got := r.Uleb(); got != v || r.Bad || r.Left() != 0 {
			t.Errorf("% x: %d, want %d", b, got, v)
		}
		long := append(slices.Clone(b), 0)
		long[len(b)-1] |= 0x80
		r = At(long, 0)
		if got := r.Uleb(); got != v || r.Left() != 0 {
			t.Errorf("% x: %d, want %d", long, got, v)
		}
	}
	for _, c := range []struct {
		in   []byte
		want int64
	}{
		{[]byte{0}, 0}, {[]byte{2}, 2}, {[]byte{0x7e}, -2}, {[]byte{0xff, 0}, 127}, {[]byte{0x81, 0x7f}, -127}, {[]byte{0x80, 1}, 128},
		{[]byte{0x80, 0x7f}, -128}, {[]byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f}, -1 << 63},
		{[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0}, 1<<63 - 1},
		{[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, -1},
	} {
		r := At(c.in, 0)
		if got := r.Sleb(); got != c.want || r.Bad || r.Left() != 0 {
			t.Errorf("% x: %d, want %d", c.in, got, c.want)
		}
	}
	for _, in := range [][]byte{nil, {0x80}, slices.Repeat([]byte{0xff}, 40)} {
		r, s := At(in, 0), At(in, 0)
		r.Uleb()
		s.Sleb()
		if !r.Bad || !s.Bad {
			t.Errorf("% x is whole", in)
		}
	}
	for _, size := range []int{0, 3, 5, 16, -1} {
		r := Reader{B: make([]byte, 32)}
		if r.Uint(size); !r.Bad {
			t.Errorf("a number of %d bytes is read", size)
		}
	}
}

// TestInitialLengths reads the lengths of units in both formats, and the
// values that are reserved.
func TestInitialLengths(t *testing.T) {
	for _, c := range []struct {
		in     []byte
		n      uint64
		is64   bool
		bad    bool
		behind uint64
	}{
		{[]byte{2, 0, 0, 0, 1, 2}, 2, false, false, 4},
		{[]byte{3, 0, 0, 0, 1, 2}, 3, false, true, 4},
		{[]byte{0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0, 9}, 1, true, false, 12},
		{[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 9}, ^uint64(0), true, true, 12},
		{[]byte{0xf0, 0xff, 0xff, 0xff}, 0xfffffff0, false, true, 4},
		{[]byte{0xfe, 0xff, 0xff, 0xff}, 0xfffffffe, false, true, 4},
		{[]byte{0xff, 0xff, 0xff, 0xff, 1}, 0, true, true, 5},
		{[]byte{1, 0}, 0, false, true, 2},
	} {
		r := At(c.in, 0)
		if n, is64 := r.Length(); n != c.n || is64 != c.is64 || r.Bad != c.bad || r.At != c.behind {
			t.Errorf("% x: %d, %v, bad %v, at %d", c.in, n, is64, r.Bad, r.At)
		}
	}
}
