package gocode

import (
	"debug/dwarf"
	"errors"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/insn"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
)

// TestGMember: the code of Go's runtime tells where a runtime.g has its number and its
// labels, as the debug information of the same program does, and a stripped program's
// too.
func TestGMember(t *testing.T) {
	for _, flags := range [][]string{nil, {"-buildmode=pie"}} {
		file, err := symbols.OpenFile(fixture.Build(t, "goid/probe_goid.go", flags...))
		if err != nil {
			t.Fatal(err)
		}
		stripped, err := symbols.OpenFile(fixture.Build(t, "goid/probe_goid.go", append(flags, "-ldflags=-s -w")...))
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]int64{}
		err = file.ReadDebug(func(d *debuginfo.Data) error {
			g, _ := d.FindType("runtime.g", nil)
			for c := range g.Children() {
				if off, ok := c.Int(dwarf.AttrDataMemberLoc); ok {
					want[c.Name()] = off
				}
			}
			return nil
		})
		if err != nil || want["goid"] == 0 || want["labels"] == 0 {
			t.Fatalf("debug information has %v, %v", want, err)
		}
		for _, name := range []string{"goid", "labels"} {
			for _, f := range []*symbols.File{file, stripped} {
				if off, err := GMember(f, name); err != nil || off != want[name] {
					t.Errorf("%v %s: %d, %v; debug information says %d", flags, name, off, err, want[name])
				}
			}
		}
		if _, err := GMember(file, "sched"); !errors.Is(err, ErrUnknownMember) {
			t.Errorf("what no code is known for: %v", err)
		}
	}
}

// TestGMemberForms has the forms in which compilers of several versions write the same,
// and some that must not be taken for it.
func TestGMemberForms(t *testing.T) {
	fill := []byte{
		0x41, 0xb9, 0x10, 0, 0, 0, // mov r9d, 16
		0x4c, 0x8d, 0x15, 0x20, 0x5c, 0x90, 1, // lea r10, [rip+...]
		0xf0, 0x4d, 0x0f, 0xc1, 0x0a, // lock xadd [r10], r9
		0x4d, 0x8d, 0x51, 1, // lea r10, [r9+1]
		0x4c, 0x89, 0x97, 0x78, 1, 0, 0, // mov [rdi+0x178], r10
	}
	load := []byte{0x48, 0x8b, 0x97, 0x78, 1, 0, 0}  // mov rdx, [rdi+0x178]
	store := []byte{0x48, 0x89, 0x96, 0xa0, 0, 0, 0} // mov [rsi+0xa0], rdx
	reload := []byte{0x48, 0x8b, 0x74, 0x24, 0x40}   // mov rsi, [rsp+0x40]
	again := []byte{0x48, 0x8b, 0x54, 0x24, 0x40}    // mov rdx, [rsp+0x40]
	inc := []byte{0x48, 0xff, 0x82, 0x78, 1, 0, 0}   // inc qword [rdx+0x178]
	half := []byte{0xff, 0x82, 0x78, 1, 0, 0}        // inc dword [rdx+0x178]
	other := []byte{0x48, 0x89, 0x96, 0xa8, 0, 0, 0} // mov [rsi+0xa8], rdx
	call := []byte{0xe8, 0, 0, 0, 0}
	for name, c := range map[string]struct {
		code [][]byte
		off  int64
	}{
		"side by side":       {[][]byte{fill, load, store, call, inc}, 0xa0},
		"reloaded between":   {[][]byte{fill, load, reload, store, inc}, 0xa0},
		"no cache":           {[][]byte{load, store, inc}, 0},
		"nothing increased":  {[][]byte{fill, load, store}, 0},
		"32 bits increased":  {[][]byte{fill, load, store, half}, 0},
		"another value":      {[][]byte{fill, load, again, store, inc}, 0},
		"behind a call":      {[][]byte{fill, load, call, store, inc}, 0},
		"two places":         {[][]byte{fill, load, store, load, other, inc}, 0},
		"another refill":     {[][]byte{{0x41, 0xb9, 0x20, 0, 0, 0}, fill[6:], load, store, inc}, 0},
		"stored to the same": {[][]byte{fill, load, {0x48, 0x89, 0x97, 0xa0, 0, 0, 0}, inc}, 0},
	} {
		var code []byte
		for _, b := range c.code {
			code = append(code, b...)
		}
		f, err := insn.Sweep(code, 0x1000, insn.SweepOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if off, ok := numbered(f); off != c.off && ok || ok != (c.off != 0) {
			t.Errorf("%s: %#x, %v, want %#x", name, off, ok, c.off)
		}
	}
}
