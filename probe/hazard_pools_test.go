package probe

import (
	"fmt"
	"os"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// TestHazardP60 gives return probes of all functions so many instances that they take more
// than a gibibyte of addresses: they come out again.
func TestHazardP60(t *testing.T) {
	sub := startSubject(t, fixture.Build(t, "unborn.c", "-O1"))
	before := sameText(t, sub.pid())
	l, _ := engage(t, sub.pid(), Options{MaxActive: 4096}, "r:all libc:* a=$arg1@entry b=$arg2@entry c=$arg3@entry")
	maps, err := symbols.ReadMaps(sub.pid())
	if err != nil {
		t.Fatal(err)
	}
	var largest symbols.Addr
	for _, m := range maps {
		if m.Path == "" {
			largest = max(largest, m.End-m.Start)
		}
	}
	if largest <= 1<<30 {
		t.Errorf("the instances take %d bytes: they prove nothing", largest)
	}
	if err := l.s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if after := sameText(t, sub.pid()); after != before {
		t.Errorf("the text is not what it was:\n%s\nbefore:\n%s", after, before)
	}
}

// TestPoolsMemory: return probes on all of a library don't fill the program's memory with
// instances that nobody asked for, and have as many as somebody asked for.
func TestPoolsMemory(t *testing.T) {
	prog := fixture.Build(t, "unborn.c", "-O1")
	grown := func(o Options) uint64 {
		sub := startSubject(t, prog)
		before := residentSize(t, sub.pid())
		l, _ := engage(t, sub.pid(), o, "r:all libc:* a=$arg1@entry b=$arg2@entry c=$arg3@entry")
		n := residentSize(t, sub.pid()) - before
		l.finish(sub.pid())
		return n
	}
	const most = 32 << 20
	if n := grown(Options{}); n > most {
		t.Errorf("the program's memory has grown by %d bytes, at most %d are meant", n, most)
	}
	if n := grown(Options{MaxActive: 1024}); n <= most {
		t.Errorf("1024 instances of each probe take %d bytes: there are fewer, or the number above proves nothing", n)
	}
}

// residentSize is how much memory of a process is in use, in bytes (proc_pid_statm(5)).
func residentSize(t *testing.T, pid int) uint64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	var size, resident uint64
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * uint64(os.Getpagesize())
}
