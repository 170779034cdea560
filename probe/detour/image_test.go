package detour

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"kprobe/probe/asm"
)

// memory is a region of an image that grows by Put.
type memory []byte

func (m memory) Put(off int, b []byte) { copy(m[off:], b) }

// image is the file that the C programs of these tests map.
type image struct {
	segs  []segment
	table *Table // of a fallback handler's, which it changes
}

type segment struct {
	addr, prot uint64
	bytes      []byte
}

const (
	protRW = 3
	protRX = 5
)

func (im *image) add(addr, prot uint64, b []byte) {
	im.segs = append(im.segs, segment{addr, prot, b})
}

func (im *image) write(t testing.TB) string {
	t.Helper()
	var out []byte
	for _, s := range im.segs {
		size := (uint64(len(s.bytes)) + 4095) &^ 4095
		for _, v := range []uint64{s.addr, uint64(len(s.bytes)), size, s.prot} {
			out = binary.LittleEndian.AppendUint64(out, v)
		}
		out = append(out, s.bytes...)
	}
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func assemble(t testing.TB, c *asm.Code) []byte {
	t.Helper()
	b, err := c.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return b
}
