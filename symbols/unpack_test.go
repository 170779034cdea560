package symbols

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"testing"

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
		im, closer := openImage(prog)
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
	im, closer := openImage(prog)
	defer closer.Close()
	if got, err := im.debugSection(nil, "str"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if im.releaser(".debug_str") != nil {
		t.Error("memory that no file backs would be let go")
	}
}
