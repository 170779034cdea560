package memory

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"kprobe/probe/ring"
)

// TestHazardP43Space: a file that is kept has the space of each page that is written, those
// of the rings of sequences, too, where there is no room for it later.
func TestHazardP43Space(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "kprobe-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, spare := range []bool{false, true} {
		p := ring.Params{CPUs: 3, RingSize: ring.MinOverwrite, Overwrite: true, Spare: spare}
		p.Compact(1)
		l, err := ring.New(p)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Keep(filepath.Join(dir, strconv.FormatBool(spare)), l)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		want := l.Code.Off
		if spare { // nobody writes the second rings
			want -= int64(l.NumRings()-l.Areas()) * l.RingStride()
		}
		if got := 512 * info.Sys().(*syscall.Stat_t).Blocks; got < want || info.Size() != l.Code.Off {
			t.Errorf("spare rings %v: it has the space of %d bytes, and %d may be written", spare, got, want)
		}
	}
}
