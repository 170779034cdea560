package symbols

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"kprobe/internal/fixture"
)

// TestUnpackLarge: a large compressed section is unpacked to a file that is gone
// at once, and its pages can be let go.
func TestUnpackLarge(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := t.TempDir()
	want := bytes.Repeat([]byte("one string and another\x00"), (toFileFrom+1<<20)/23)
	data, prog := filepath.Join(dir, "data"), filepath.Join(dir, "prog")
	if err := os.WriteFile(data, want, 0o644); err != nil {
		t.Fatal(err)
	}
	fixture.NeedTool(t, "objcopy")
	run(t, "objcopy", "--add-section", ".debug_str="+data, fixture.Build(t, "cli_loop.c"), prog+".plain")
	for _, how := range []string{"zlib", "zstd", "zlib-gnu"} {
		run(t, "objcopy", "--compress-debug-sections="+how, prog+".plain", prog)
		im, closer := openImage("", prog)
		if im == nil {
			t.Fatal("no ELF file")
		}
		if s := im.section(".debug_str"); how != "zlib-gnu" && (s == nil || s.flags&elf.SHF_COMPRESSED == 0) {
			t.Fatalf("%s: not compressed: %+v", how, s)
		}
		got, err := im.debugSection(nil, "str")
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: %d bytes of %d, %v", how, len(got), len(want), err)
		}
		release := im.releaser(".debug_str")
		if release == nil {
			t.Fatalf("%s: can't be let go", how)
		}
		release(100, uint64(len(want)))
		if !bytes.Equal(got, want) {
			t.Errorf("%s: other bytes come back", how)
		}
		if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
			t.Errorf("%s: %v are left, %v", how, left, err)
		}
		closer.Close()
	}
	// Without a place for files there is memory.
	t.Setenv("TMPDIR", filepath.Join(dir, "nowhere"))
	im, closer := openImage("", prog)
	defer closer.Close()
	if got, err := im.debugSection(nil, "str"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if im.releaser(".debug_str") != nil {
		t.Error("memory that no file backs would be let go")
	}
}

// TestKeepUnpacked: a large section is unpacked once, to a file of the user's
// alone; one that is damaged, another section's, or writable for others isn't
// used, and a folder that can't be used changes no answer.
func TestKeepUnpacked(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := t.TempDir()
	want := bytes.Repeat([]byte("a string\x00and its tail\x00"), (toFileFrom+1<<20)/22)
	data, prog := filepath.Join(dir, "data"), filepath.Join(dir, "prog")
	if err := os.WriteFile(data, want, 0o644); err != nil {
		t.Fatal(err)
	}
	fixture.NeedTool(t, "objcopy")
	run(t, "objcopy", "--add-section", ".debug_str="+data, fixture.Build(t, "cli_loop.c", "-Wl,--build-id"), prog+".plain")
	run(t, "objcopy", "--compress-debug-sections=zlib", prog+".plain", prog)
	cache := filepath.Join(dir, "deep", "cache")
	ask := func() os.FileInfo {
		t.Helper()
		im, closer := openImage("", prog)
		if im == nil {
			t.Fatal("no ELF file")
		}
		defer closer.Close()
		im.cache = cache
		if got, err := im.debugSection(nil, "str"); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes of %d, %v", len(got), len(want), err)
		}
		if im.releaser(".debug_str") == nil {
			t.Error("can't be let go")
		}
		list, err := filepath.Glob(filepath.Join(cache, "*"))
		if err != nil || len(list) > 1 {
			t.Fatalf("the folder has %v, %v", list, err)
		}
		if len(list) == 0 {
			return nil
		}
		st, err := os.Lstat(list[0])
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	first := ask()
	if first == nil || first.Mode() != 0o600 || !os.SameFile(first, ask()) {
		t.Fatalf("%v isn't kept, or not used", first)
	}
	path := filepath.Join(cache, first.Name())
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	replaced := func(b []byte, mode os.FileMode) {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		before, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		after := ask()
		if after == nil || os.SameFile(before, after) || after.Mode() != 0o600 || after.Size() != int64(len(good)) {
			t.Errorf("%d bytes, mode %o, were used: %v", len(b), mode, after)
		}
	}
	tail := len(good) - sectionTail
	replaced(good, 0o662)
	replaced(nil, 0o600)
	replaced(good[:tail], 0o600)
	replaced(good[:tail+sectionTail-1], 0o600)
	replaced(good[4096:], 0o600)
	for i := tail; i < len(good); i += 3 {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		replaced(bad, 0o600)
	}
	// A link, a folder in its place, and a folder that is none.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(data, path); err != nil {
		t.Fatal(err)
	}
	if st := ask(); st == nil || st.Mode() != 0o600 {
		t.Errorf("a link was followed, or stayed: %v", st)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(path, "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	if st := ask(); st == nil || !st.IsDir() {
		t.Errorf("the folder is %v", st)
	}
	cache = prog
	ask()
}

// TestKeptSectionUnfinished: what could not be written or read to its end leaves
// nothing, and the oldest go first.
func TestKeptSectionUnfinished(t *testing.T) {
	dir := t.TempDir()
	k := &keptSection{dir: dir, path: filepath.Join(dir, "a.section"), identity: 7}
	r := io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), iotest.ErrReader(io.ErrUnexpectedEOF))
	if _, err := k.save(r); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v", err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("%v are left, %v", list, err)
	}
	for i, name := range []string{"old.section", "new.section", "other.index"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
			t.Fatal(err)
		}
		when := time.Now().Add(time.Duration(i-10) * time.Hour)
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	makeRoom(dir, ".section", 50, 200)
	var left []string
	list, err := os.ReadDir(dir)
	for _, e := range list {
		left = append(left, e.Name())
	}
	if want := []string{"new.section", "other.index"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("%v are left, want %v, %v", left, want, err)
	}
}
