package cli

import (
	"runtime"
	"slices"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// TestCompletionReadsLittle: a shell waits, so of a large file no more is made
// than its symbols' table, not the sorted functions, which take nearly as much again.
func TestCompletionReadsLittle(t *testing.T) {
	node := fixture.NeedTool(t, "node")
	takes := func(do func(f *symbols.File)) uint64 {
		t.Helper()
		f, err := symbols.OpenFile(node)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do(f)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	table := takes(func(f *symbols.File) { f.NamesWith("", 1) })
	if funcs := takes(func(f *symbols.File) { f.Funcs() }); funcs < table*3/2 {
		t.Fatalf("the functions take %d bytes, the table %d: the test can't tell", funcs, table)
	}
	for word, want := range map[string]string{"uv_fs_r": "uv_fs_read", "no_such_symbol": ""} {
		var names []string
		got := takes(func(f *symbols.File) { names = functionsWith(f, "", word) })
		if got > table*5/4 || (want != "") != slices.Contains(names, "uv_fs_read") {
			t.Errorf("%s: %d bytes, where the table takes %d: %q", word, got, table, names)
		}
	}
}
