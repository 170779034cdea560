package symbols

import (
	"testing"

	"kprobe/internal/fixture"
)

// What a pointer in constant data is when the program starts is known however the dynamic linker puts it there. Words
// that are no address, and those of another file's symbol, are not.
func TestPointer(t *testing.T) {
	for _, flags := range [][]string{{"-pie"}, {"-no-pie"}, {"-static"}, {"-static-pie"}, {"-pie", "-Wl,-z,pack-relative-relocs"}} {
		f, err := OpenFile(fixture.Build(t, "probe_onward.cc", append(flags, "-O2", "-pthread")...))
		if err != nil {
			t.Fatal(err)
		}
		at := func(name string) Vaddr {
			list := f.Lookup(name)
			if len(list) == 0 {
				t.Fatalf("%v: no %s", flags, name)
			}
			return list[0].Vaddr
		}
		table := at("_ZL4list")
		for i, name := range []string{0: "own", 2: "alike", 3: "raises", 4: "flees"} {
			if name == "" {
				continue
			}
			if to, ok := f.Pointer(table + Vaddr(8*i)); !ok || to != at(name) {
				t.Errorf("%v: entry %d is %#x, %v; want %s at %#x", flags, i, uint64(to), ok, name, uint64(at(name)))
			}
		}
		for _, v := range []Vaddr{at("_ZL4sunk"), 0, 1 << 60, ^Vaddr(0) - 3} {
			if to, ok := f.Pointer(v); ok {
				t.Errorf("%v: %#x is a pointer to %#x", flags, uint64(v), uint64(to))
			}
		}
	}
}
