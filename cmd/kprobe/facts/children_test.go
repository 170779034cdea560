package facts

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// TestDescendants: all processes below one, but those that have ended.
func TestDescendants(t *testing.T) {
	root := t.TempDir()
	for pid, status := range map[int]string{
		1: "PPid:\t0\n", 10: "PPid:\t1\nState:\tS (sleeping)\n", 12: "PPid:\t10\nState:\tR (running)\n",
		11: "PPid:\t12\n", 13: "PPid:\t10\nState:\tZ (zombie)\n", 14: "PPid:\t1\n", 20: "PPid:\t21\n", 21: "PPid:\t20\n",
	} {
		dir := filepath.Join(root, strconv.Itoa(pid))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "status"), []byte(status), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"self", "99"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := Proc{Root: root}
	for pid, want := range map[int][]int{10: {11, 12}, 14: nil, 1: {10, 11, 12, 14}, 20: {21}, 50: nil} {
		if got := p.Descendants(pid); !slices.Equal(got, want) {
			t.Errorf("%d: %v, want %v", pid, got, want)
		}
	}
	if got := (Proc{Root: filepath.Join(root, "none")}).Descendants(1); got != nil {
		t.Errorf("without /proc: %v", got)
	}
}
