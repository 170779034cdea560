package area

import (
	"encoding/binary"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/probe/detour"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
)

// TestTableIsNotHeld: kprobe holds little of a fallback handlers' table of many sites, which the file has.
func TestTableIsNotHeld(t *testing.T) {
	const sites, most = 200_000, 2 << 20
	l, err := ring.New(ring.Params{CPUs: 1, MaxProbes: 1, Sites: 1, RingSize: ring.MinRingSize, MaxMaps: 1, Fallback: detour.TableSize(sites)})
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.MemfdCreate(ring.MemfdName, unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), ring.MemfdName)
	defer f.Close()
	if err := f.Truncate(l.Code.Off); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, int(l.Code.Off), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	table, err := newTable(&memory.File{Layout: l, Mem: mem}, l.Fallback)
	if err != nil {
		t.Fatal(err)
	}
	err = table.Together(sites, func() error {
		for i := range uint64(sites) {
			if err := table.Insert(16*i+16, i+1); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := fixture.Held(t, mem[l.Fallback.Off:l.Fallback.End()]); got > most {
		t.Errorf("it holds %d bytes of a table of %d, want at most %d", got, l.Fallback.Size, most)
	}
	values := map[uint64]bool{}
	b := make([]byte, l.Fallback.Size)
	if _, err := f.ReadAt(b, l.Fallback.Off); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(b); i += 8 {
		values[binary.LittleEndian.Uint64(b[i:])] = true
	}
	for i := range uint64(sites) {
		if !values[i+1] || !values[16*i+16] {
			t.Fatalf("the file doesn't have site %d", i)
		}
	}
}
