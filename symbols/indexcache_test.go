package symbols

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/symbols/debuginfo"
)

// asksByName asks a program's debug information for a function.
func asksByName(t *testing.T, c *Cache, prog string) {
	t.Helper()
	s, err := c.OpenFileSpace(prog)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Modules()[0].File.ReadDebug(func(d *debuginfo.Data) error {
		if len(d.FindFunctions("scalars")) != 1 || len(d.FindFunctions("no_such_name")) != 0 {
			t.Error("the answer is wrong")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestIndexFolder: the index is kept for the user alone, once, and a folder
// that can't be used changes no answer.
func TestIndexFolder(t *testing.T) {
	for _, flags := range [][]string{{"-g", "-O2", "-Wl,--build-id"}, {"-g", "-O2", "-Wl,--build-id=none"}} {
		prog := fixture.Build(t, "dwarf_vars.c", flags...)
		dir := filepath.Join(t.TempDir(), "deep", "kprobe")
		cache := func() *Cache { return &Cache{IndexDir: dir, indexFrom: 1} }
		asksByName(t, cache(), prog)
		list, err := os.ReadDir(dir)
		if err != nil || len(list) != 1 {
			t.Fatalf("%v: the folder has %v, %v", flags, list, err)
		}
		path := filepath.Join(dir, list[0].Name())
		before, err := os.Stat(path)
		if err != nil || before.Mode().Perm() != 0o600 {
			t.Fatal(before, err)
		}
		asksByName(t, cache(), prog)
		if after, err := os.Stat(path); err != nil || !after.ModTime().Equal(before.ModTime()) {
			t.Errorf("the index was made again: %v", err)
		}
		// What others may write to is not believed, nor are links and folders.
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
		asksByName(t, cache(), prog)
		if after, err := os.Stat(path); err != nil || after.Mode().Perm() != 0o600 {
			t.Errorf("an index of everybody's was used: %v, %v", after.Mode(), err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		asksByName(t, cache(), prog)
	}
	prog := fixture.Build(t, "dwarf_vars.c", "-g", "-O2")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	asksByName(t, &Cache{IndexDir: file, indexFrom: 1}, prog)
	asksByName(t, &Cache{IndexDir: "/proc/self/nothing", indexFrom: 1}, prog)
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	asksByName(t, &Cache{indexFrom: 1}, prog)
}

// TestIndexFolderIsBounded: the oldest go when there is too much, and what a
// killed writer left.
func TestIndexFolderIsBounded(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	file := func(name string, size int64, age time.Duration) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	file("old.index", maxIndexes/2, 3*time.Hour)
	file("newer.index", maxIndexes/2, 2*time.Hour)
	file("new-1.tmp", 10, 2*time.Hour)
	file("new-2.tmp", 10, time.Minute)
	file("other", maxIndexes, 9*time.Hour)
	x := &indexFile{dir, filepath.Join(dir, "mine.index")}
	x.Save(make([]byte, 1000))
	x.Save(make([]byte, maxIndex+1))
	for name, want := range map[string]bool{"old.index": false, "newer.index": true, "new-1.tmp": false, "new-2.tmp": true, "other": true, "mine.index": true} {
		st, err := os.Stat(filepath.Join(dir, name))
		if (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", name, err, want)
		}
		if name == "mine.index" && err == nil && st.Size() != 1000 {
			t.Errorf("an index that is too large was kept: %d bytes", st.Size())
		}
	}
}
