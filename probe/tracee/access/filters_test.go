package access

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestInheritedFilters: filters are those of both where a common ancestor has all of
// them, whatever their number.
func TestInheritedFilters(t *testing.T) {
	type process struct{ pid, parent, filters int }
	for _, c := range []struct {
		name      string
		processes []process
		n         int
		want      bool
	}{
		{"siblings in a container", []process{{1, 0, 1}, {10, 1, 1}, {20, 1, 1}}, 1, true},
		{"as many of its own", []process{{1, 0, 0}, {10, 1, 1}, {20, 1, 1}}, 1, false},
		{"one of the container's, one of its own", []process{{1, 0, 1}, {10, 1, 2}, {20, 1, 2}}, 2, false},
		{"more of its own", []process{{1, 0, 1}, {10, 1, 1}, {20, 1, 2}}, 2, false},
		{"none of kprobe's", []process{{1, 0, 0}, {10, 1, 0}, {20, 1, 1}}, 1, false},
		{"a shell under a filter starts both", []process{{1, 0, 0}, {5, 1, 1}, {10, 5, 1}, {20, 5, 1}}, 1, true},
		{"a child of kprobe's", []process{{1, 0, 0}, {10, 1, 1}, {20, 10, 1}}, 1, true},
		{"kprobe is a child of it", []process{{1, 0, 0}, {10, 20, 1}, {20, 1, 1}}, 1, true},
		{"put into the container later", []process{{10, 0, 1}, {1, 0, 1}, {20, 1, 1}}, 1, true},
		{"put into it later, with a filter of its own", []process{{10, 0, 1}, {1, 0, 0}, {20, 1, 1}}, 1, false},
		{"before Linux 5.9", []process{{1, 0, 0}, {10, 1, 0}, {20, 1, 0}}, 0, false},
		{"gone", []process{{1, 0, 1}, {10, 1, 1}}, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for _, p := range c.processes {
				dir := filepath.Join(root, fmt.Sprint(p.pid))
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				status := fmt.Sprintf("Pid:\t%d\nPPid:\t%d\nSeccomp_filters:\t%d\n", p.pid, p.parent, p.filters)
				if err := os.WriteFile(filepath.Join(dir, "status"), []byte(status), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := InheritedFilters(root, 10, 20, c.n); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
