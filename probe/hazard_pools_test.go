package probe

import (
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
