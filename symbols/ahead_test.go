package symbols

import (
	"bytes"
	"errors"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/symbols/debuginfo"
)

// packedProgram is a program whose .debug_info is followed by half noise, half zeros, so that it is large even when it is compressed.
func packedProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	info, prog := filepath.Join(dir, "info"), filepath.Join(dir, "prog")
	fixture.NeedTool(t, "objcopy")
	plain := fixture.Build(t, "cli_loop.c", "-g", "-Wl,--build-id")
	run(t, "objcopy", "--dump-section", ".debug_info="+info, plain, prog+".plain")
	b, err := os.ReadFile(info)
	if err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, toFileFrom+1<<20)
	for i, rnd := 0, rand.New(rand.NewSource(1)); i < len(noise); i += 128 {
		rnd.Read(noise[i:min(i+64, len(noise))])
	}
	copy(noise, "\xff\xff\xff\xff\xff\xff\xff\xff") // the length of a unit that isn't there
	if err := os.WriteFile(info, append(b, noise...), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "objcopy", "--update-section", ".debug_info="+info, plain, prog+".plain")
	run(t, "objcopy", "--compress-debug-sections=zlib", prog+".plain", prog)
	return prog
}

// spaceOf is a file's own space, with a folder for unpacked sections.
func spaceOf(t *testing.T, prog, dir string) (*Space, *File) {
	t.Helper()
	s, err := (&Cache{IndexDir: dir}).OpenFileSpace(prog)
	if err != nil {
		t.Fatal(err)
	}
	return s, s.Modules()[0].File
}

// TestResolveAhead: compressed debug information is unpacked before somebody asks for it, if the caller says that it
// will be needed, and only then. The places are the same.
func TestResolveAhead(t *testing.T) {
	prog := packedProgram(t)
	p := Place{Kind: PlaceSymbol, Symbol: "main"}
	s, f := spaceOf(t, prog, t.TempDir())
	want, err := s.Resolve(p)
	if err != nil || f.ahead.wanted != nil || f.debugRead.Load() {
		t.Fatalf("%v, %v, read ahead: %v", want, err, f.ahead.wanted != nil)
	}
	dir := t.TempDir()
	s, f = spaceOf(t, prog, dir)
	got, err := s.ResolveAhead(p)
	if err != nil || len(got) != 1 || len(want) != 1 || got[0].Addr != want[0].Addr {
		t.Fatalf("%v, want %v, %v", got, want, err)
	}
	for deadline := time.Now().Add(time.Minute); !f.debugRead.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody unpacks")
		}
	}
	if list, err := filepath.Glob(filepath.Join(dir, "*.section")); err != nil || len(list) != 1 {
		t.Errorf("the folder has %v, %v", list, err)
	}
	// Somebody waits at once.
	s, f = spaceOf(t, prog, t.TempDir())
	if _, err := s.ResolveAhead(p); err != nil {
		t.Fatal(err)
	}
	found := 0
	if err := f.ReadDebug(func(d *debuginfo.Data) error { found = len(d.FindFunctions("main")); return nil }); err != nil || found != 1 {
		t.Errorf("main is there %d times, %v", found, err)
	}
	if _, ok := f.Unwind().At(uint64(got[0].Vaddr)); !ok {
		t.Error("no call frame information")
	}
}

// TestUnpackDamaged: a large section that is damaged is a *FormatError that says how, whether it is read ahead or not,
// and nothing of it is kept. What follows behind the section's size is not read.
func TestUnpackDamaged(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	prog := packedProgram(t)
	good, err := os.ReadFile(prog)
	if err != nil {
		t.Fatal(err)
	}
	im, closer := openImage("", prog)
	if im == nil {
		t.Fatal("no ELF file")
	}
	closer.Close()
	info := im.section(".debug_info")
	off, end := int(info.off), int(info.off)+int(info.size)
	for _, c := range []struct {
		name, why string
		spoil     func(b []byte)
	}{
		{"checksum", "checksum", func(b []byte) { b[end-1] ^= 1 }},
		{"header", "header", func(b []byte) { b[off+24] = 0xff }},
		{"longer", "EOF", func(b []byte) { b[off+8]++ }},
		{"shorter", "", func(b []byte) { b[off+8]-- }},
	} {
		b := bytes.Clone(good)
		c.spoil(b)
		path := filepath.Join(t.TempDir(), c.name)
		if err := os.WriteFile(path, b, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, ahead := range []bool{false, true} {
			dir := t.TempDir()
			s, f := spaceOf(t, path, dir)
			if ahead {
				if _, err := s.ResolveAhead(Place{Kind: PlaceSymbol, Symbol: "main"}); err != nil {
					t.Fatal(err)
				}
			}
			err := f.ReadDebug(func(*debuginfo.Data) error { return nil })
			if c.why == "" {
				if err != nil {
					t.Errorf("%s, ahead %v: %v", c.name, ahead, err)
				}
				continue
			}
			var bad *FormatError
			if !errors.As(err, &bad) || !strings.Contains(bad.What, ".debug_info") || !strings.Contains(bad.Why, c.why) {
				t.Errorf("%s, ahead %v: %v", c.name, ahead, err)
			}
			for _, d := range []string{dir, os.Getenv("TMPDIR")} {
				left, err := os.ReadDir(d)
				if left = slices.DeleteFunc(left, os.DirEntry.IsDir); err != nil || len(left) > 0 {
					t.Errorf("%s: %v are left, %v", c.name, left, err)
				}
			}
		}
	}
}
