package symbols

import (
	"io"
	"runtime"
	"testing"

	"kprobe/internal/fixture"
)

// readsAt counts the reads that begin at one place of a file.
type readsAt struct {
	io.ReaderAt
	at int64
	n  int
}

func (c *readsAt) ReadAt(b []byte, off int64) (int, error) {
	if off == c.at {
		c.n++
	}
	return c.ReaderAt.ReadAt(b, off)
}

// TestFrameInformationIsReadOnce: the .eh_frame of a file with gigabytes of code is large. It is in memory once, for
// as long as somebody uses it.
func TestFrameInformationIsReadOnce(t *testing.T) {
	f, err := OpenFile(fixture.Build(t, "not_called.c"))
	if err != nil {
		t.Fatal(err)
	}
	reads := &readsAt{ReaderAt: f.im.r, at: int64(f.im.section(".eh_frame").off)}
	f.im.r = reads
	held := f.im.ehFrame()
	runtime.GC()
	f.fdes()
	f.searchEntry(0)
	f.findEntries()
	f.Unwind()
	table := f.ehTable()
	if reads.n != 1 {
		t.Errorf("it was read %d times while it was in use", reads.n)
	}
	runtime.KeepAlive(held)
	runtime.GC()
	f.im.ehFrame()
	if reads.n != 1 {
		t.Errorf("it was read %d times while tables used it", reads.n)
	}
	runtime.KeepAlive(table)
	bare, err := OpenFile(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	reads = &readsAt{ReaderAt: bare.im.r, at: reads.at}
	bare.im.r = reads
	for range 2 {
		if bare.im.ehFrame() == nil {
			t.Fatal("there is none")
		}
		runtime.GC()
	}
	if reads.n != 2 {
		t.Errorf("it was read %d times, though nobody held it", reads.n)
	}
}
