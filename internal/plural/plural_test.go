package plural

import "testing"

func TestOf(t *testing.T) {
	for n, want := range map[int]string{0: "0 files", 1: "1 file", 2: "2 files", -1: "-1 files", 1000: "1000 files"} {
		if got := Of(n, "file", "files"); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}
