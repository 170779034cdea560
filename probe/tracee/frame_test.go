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
	}{
		{"user mode", 7, -1, 3, 7, 0x1000, xstateMin},
		{"restart", erestartSys, 0, 3, 0, 0x0ffe, xstateMin},
		{"restart, no handler", erestartNoHand, 232, 7, 232, 0x0ffe, xstateAVX},
		{"restart block", erestartRestartblock, 35, 7, 35, 0x0ffe, xstateAVX},
		{"a result", eintr, 0, 0xe7, negative(eintr), 0x1000, 2696},
		{"error number without a call", erestartSys, -1, 0, negative(erestartSys), 0x1000, xstateMin},
	} {
		t.Run(c.name, func(t *testing.T) {
			xs := make([]byte, 2696)
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
			if n := int(le.Uint32(x[swOffset+16:])); n != c.wantXState || n+4 != len(x) || le.Uint32(x[n:]) != fpMagic2 {
				t.Errorf("XSAVE image of %d bytes, want %d", n, c.wantXState)
			}
		})
	}
}

func FuzzParseMaps(f *testing.F) {
	f.Add("00400000-00401000 r-xp 00001000 08:01 1234   /bin/a b\n")
	f.Add("7ffd-7fff rw-p 0 00:00 0 [stack]\n\n-")
	f.Fuzz(func(t *testing.T, text string) {
		for _, m := range parseMaps(text) {
			if len(m.perms) < 4 {
				t.Errorf("permissions %q", m.perms)
			}
		}
	})
}
