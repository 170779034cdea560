package ring

import (
	"errors"
	"os"
	"runtime"
	"testing"
)

func TestParseCPUs(t *testing.T) {
	for _, tt := range []struct {
		list string
		want int // 0: refused
	}{
		{"0\n", 1}, {"0-3\n", 4}, {"0,2-5", 6}, {"8,0-3", 9}, {"0-4095", 4096},
		{"", 0}, {"\n", 0}, {"a", 0}, {"3-1", 0}, {"-1", 0}, {"0-", 0}, {"0-4096", 0}, {"0,,1", 0},
		{"99999999999999999999", 0},
	} {
		n, err := ParseCPUs(tt.list)
		if n != tt.want || (err == nil) != (tt.want > 0) || err != nil && !errors.Is(err, ErrParams) {
			t.Errorf("%q: %d, %v", tt.list, n, err)
		}
	}
}

func TestParseCPUsHere(t *testing.T) {
	b, err := os.ReadFile("/sys/devices/system/cpu/possible")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := ParseCPUs(string(b)); err != nil || n < runtime.NumCPU() {
		t.Errorf("%d, %v, with %d CPUs", n, err, runtime.NumCPU())
	}
}
