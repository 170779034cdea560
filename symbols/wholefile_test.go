package symbols

import (
	"os"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/symbols/debuginfo"
)

// TestMappedOnce: a process that opens a program again and again, as one that attaches to
// many does, maps its debug information once.
func TestMappedOnce(t *testing.T) {
	path := fixture.Build(t, "sym_main.c", "-g", "-O1", "-DDYNAMIC", otherSource())
	for range 3 {
		f, err := OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.ReadDebug(func(*debuginfo.Data) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(maps), path+"\n"); n != 1 {
		t.Errorf("%s is mapped %d times", path, n)
	}
}
