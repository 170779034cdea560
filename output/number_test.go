package output

import (
	"fmt"
	"math"
	"testing"
	"time"
)

func TestAppendPadded(t *testing.T) {
	for _, v := range []uint64{0, 1, 9, 10, 99999, 100000, 999999, math.MaxUint32, math.MaxUint64} {
		for _, width := range []int{0, 1, 3, 5, 15, 25} {
			if got, want := string(appendPadded(nil, v, width, ' ')), fmt.Sprintf("%*d", width, v); got != want {
				t.Errorf("%d in %d: got %q, want %q", v, width, got, want)
			}
			if got, want := string(appendPadded(nil, v, width, '0')), fmt.Sprintf("%0*d", width, v); got != want {
				t.Errorf("%d in %d with zeros: got %q, want %q", v, width, got, want)
			}
		}
	}
}

func TestAppendMicros(t *testing.T) {
	for _, us := range []uint64{0, 1, 42, 99999, 100000, 999999} {
		if got, want := string(appendMicros(nil, us)), fmt.Sprintf("%06d", us); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestAppendCount(t *testing.T) {
	tests := []struct {
		v    uint64
		want string
	}{
		{0, "0"},
		{1 << 53, "9007199254740992"},
		{1<<53 + 1, `"9007199254740993"`},
		{math.MaxUint64, `"18446744073709551615"`},
	}
	for _, tt := range tests {
		if got := string(appendCount(nil, tt.v)); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

func TestClock(t *testing.T) {
	const start = 5_000_000_000
	wall := time.Unix(1_700_000_000, 250)
	tests := []struct {
		name string
		at   uint64
		want uint64
	}{
		{"", 7_000_000_000, 7_000_000_000},
		{"mono", 7_000_000_000, 7_000_000_000},
		{"rel", 7_000_000_000, 2_000_000_000},
		{"rel", 4_000_000_000, 0},
		{"wall", 7_000_000_001, 1_700_000_002_000_000_251},
	}
	for _, tt := range tests {
		c, err := NewClock(tt.name, start, wall)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.at(tt.at); got != tt.want {
			t.Errorf("%s: %d is printed as %d, want %d", tt.name, tt.at, got, tt.want)
		}
	}
	for _, tt := range []struct {
		name   string
		zone   int
		at     uint64
		before uint64
		want   string
	}{
		{"mono", 0, 7_000_001_000, 0, "    7.000001"},
		{"clock", 0, 7_000_001_999, 0, "22:13:22.000002"},             // of 1,700,000,002.000002 s
		{"clock", 5*3600 + 1800, 7_000_001_999, 0, "03:43:22.000002"}, // the day after
		{"clock", -23 * 3600, 7_000_001_999, 0, "23:13:22.000002"},
		{"delta", 0, 7_000_001_000, 0, "    0.000000"},
		{"delta", 0, 7_000_001_000, 6_000_000_000, "    1.000001"},
		{"delta", 0, 7_000_001_000, 8_000_000_000, "    0.000000"},
	} {
		c, err := NewClock(tt.name, start, wall.In(time.FixedZone("there", tt.zone)))
		if err != nil {
			t.Fatal(err)
		}
		if got := string((&Formatter{Clock: c}).appendTime(nil, c.micros(tt.at, tt.before))); got != tt.want {
			t.Errorf("%s, zone %d: %d is printed as %q, want %q", tt.name, tt.zone, tt.at, got, tt.want)
		}
	}
	if _, err := NewClock("utc", 0, wall); err == nil {
		t.Error("an unknown clock was accepted")
	}
}
