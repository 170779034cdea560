//go:build linux

package procfs

import "testing"

// TestParsePosition: a thread that runs, one that faults, and one in a system call.
func TestParsePosition(t *testing.T) {
	for _, c := range []struct {
		text string
		want Position
		bad  bool
	}{
		{"running\n", Position{Running: true}, false},
		{"-1 0x7ffe10 0x401000\n", Position{Nr: -1, SP: 0x7ffe10, PC: 0x401000}, false},
		{"202 0x1 0x80 0x2 0x0 0x5 0x6 0x7ffe 0x40\n", Position{InCall: true, Nr: 202, Args: [6]uint64{1, 0x80, 2, 0, 5, 6}, SP: 0x7ffe, PC: 0x40}, false},
		{"", Position{}, true},
		{"202 0x1\n", Position{}, true},
		{"a b c\n", Position{}, true},
		{"1 0x1 0x2 0x3 0x4 0x5 0x6 0x7 z\n", Position{}, true},
	} {
		if got, err := ParsePosition([]byte(c.text)); got != c.want || err != nil != c.bad {
			t.Errorf("%q: %+v, %v", c.text, got, err)
		}
	}
}
