package symbols

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// dumpHead begins a dump; dumpLoad and dumpMove are its records.
func dumpHead() []byte {
	b := binary.LittleEndian.AppendUint32(nil, jitMagic)
	for _, v := range []uint32{1, 40, 62, 0, uint32(os.Getpid()), 0, 0, 0, 0} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

func dumpRecord(id uint32, body []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, id)
	b = binary.LittleEndian.AppendUint32(b, uint32(jitHead+len(body)))
	return append(append(b, make([]byte, 8)...), body...)
}

func words(list ...uint64) (b []byte) {
	for _, v := range list {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

func dumpLoad(addr, index uint64, code int, name string) []byte {
	return dumpRecord(jitLoad, append(append(append(words(0, addr, addr, uint64(code), index), name...), 0), make([]byte, code)...))
}

func dumpMove(from, to, size, index uint64) []byte {
	return dumpRecord(jitMove, words(0, to, from, to, size, index))
}

// TestJITDump: a dump that the process has mapped names code, as it grows.
func TestJITDump(t *testing.T) {
	file := filepath.Join(t.TempDir(), fmt.Sprintf("jit-%d.dump", os.Getpid()))
	part := dumpLoad(0x300000, 3, 64, "late")
	first := append(append(append(dumpHead(), dumpLoad(0x100000, 1, 0x100, "one two")...), dumpRecord(2, make([]byte, 100))...), dumpLoad(0x200000, 2, 5000, "other")...)
	if err := os.WriteFile(file, append(bytes.Clone(first), part[:30]...), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	marker, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(marker)
	s, err := OpenProcess(os.Getpid(), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantName(t, s, 0x100010, "one two+0x10/0x100")
	wantName(t, s, 0x200000, "other+0x0/0x1388")
	wantName(t, s, 0x300000, "")
	appendTo(t, file, string(part[30:])+string(dumpMove(0x200000, 0x500000000, 5000, 2)))
	wantName(t, s, 0x300001, "late+0x1/0x40")
	wantName(t, s, 0x500000002, "other+0x2/0x1388")
}

// TestHostileDump: whatever a dump holds, reading it ends and is bounded.
func TestHostileDump(t *testing.T) {
	whole := dumpHead()
	for i := range uint64(20) {
		whole = append(append(whole, dumpLoad(0x100000*i, i, 40, "name")...), dumpMove(0x100000*i, 0x100000*i+64, 40, i)...)
	}
	take := func(b []byte) int {
		d := &jitDump{byIndex: map[uint64]string{}}
		var lines []perfLine
		at := int64(0)
		for range 5 {
			next := d.take(bytes.NewReader(b), at, int64(len(b)), &lines)
			if next < at || next > int64(len(b)) && next > 4096 {
				t.Fatalf("from %d to %d of %d", at, next, len(b))
			}
			at = next
		}
		return len(lines)
	}
	if n := take(whole); n != 40 {
		t.Errorf("%d names", n)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		b := bytes.Clone(whole[:r.IntN(len(whole))])
		for range r.IntN(6) {
			if len(b) > 0 {
				b[r.IntN(len(b))] ^= byte(1 << r.IntN(8))
			}
		}
		if n := take(b); n > len(b) {
			t.Errorf("%d names of %d bytes", n, len(b))
		}
	}
	long := append(dumpHead(), dumpLoad(0x1000, 1, 10, string(bytes.Repeat([]byte("x"), 100000)))...)
	if n := take(long); n != 1 {
		t.Errorf("a long name: %d names", n)
	}
}
