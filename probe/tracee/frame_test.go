//go:build linux && amd64

package tracee

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

func TestBuildFrame(t *testing.T) {
	for _, c := range []struct {
		name       string
		rax, orig  int64
		features   uint64
		wantAX     uint64
		wantIP     uint64
		wantXState int
		size       int
	}{
		{"user mode", 7, -1, 3, 7, 0x1000, xstateMin, 2696},
		{"restart", erestartSys, 0, 3, 0, 0x0ffe, xstateMin, 2696},
		{"restart, no handler", erestartNoHand, 232, 7, 232, 0x0ffe, xstateAVX, 2696},
		{"restart block", erestartRestartblock, 35, 7, 35, 0x0ffe, xstateAVX, 2696},
		{"a result", eintr, 0, 0xe7, negative(eintr), 0x1000, 2696, 2696},
		{"tiles not in use", 7, -1, 0xe7, 7, 0x1000, 2816, 11008},
		{"tiles in use", 7, -1, 1<<18 | 7, 7, 0x1000, 11008, 11008},
		{"error number without a call", erestartSys, -1, 0, negative(erestartSys), 0x1000, xstateMin, 2696},
	} {
		t.Run(c.name, func(t *testing.T) {
			xs := make([]byte, c.size)
			le := binary.LittleEndian
			le.PutUint64(xs[xstateBV:], c.features)
			regs := unix.PtraceRegs{Rax: negative(c.rax), Orig_rax: negative(c.orig), Rip: 0x1000, Rsp: 0x7000, Cs: 0x33, Ss: 0x2b}
			const base = 0x10000
			image, at := buildFrame(base, &regs, 0x1234, xs, 0x4444)
			if at%16 != 8 || at != base+8 {
				t.Errorf("frame at %#x of %d bytes", at, len(image))
			}
			f := image[at-base:]
			word := func(off int) uint64 { return le.Uint64(f[off:]) }
			if word(0) != 0x4444 || word(sigmaskOffset) != 0x1234 || word(fpstatePointer)%frameAlign != 0 || word(fpstatePointer) < at+frameSize {
				t.Errorf("return %#x, mask %#x, fpstate %#x", word(0), word(sigmaskOffset), word(fpstatePointer))
			}
			const ax, sp, ip = 13, 15, 16
			if word(mcontextOffset+8*ax) != c.wantAX || word(mcontextOffset+8*ip) != c.wantIP || word(mcontextOffset+8*sp) != 0x7000 {
				t.Errorf("rax %#x, rip %#x, rsp %#x", word(mcontextOffset+8*ax), word(mcontextOffset+8*ip), word(mcontextOffset+8*sp))
			}
			x := image[word(fpstatePointer)-base:]
			n := int(le.Uint32(x[swOffset+16:]))
			if n != c.wantXState || n+4 != int(le.Uint32(x[swOffset+4:])) || len(x) != c.size+4 {
				t.Errorf("XSAVE image of %d bytes in %d, want %d in %d", n, len(x), c.wantXState, c.size+4)
			}
			// Whatever size the kernel takes an image to have.
			for off := n; off < len(x); off += 4 {
				if le.Uint32(x[off:]) != fpMagic2 {
					t.Fatalf("no mark of the end at %d", off)
				}
			}
		})
	}
}
