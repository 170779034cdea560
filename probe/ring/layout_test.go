package ring

import (
	"bytes"
	"errors"
	"testing"
)

func TestSectionsDoNotOverlap(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    Params
	}{
		{"defaults", Params{}},
		{"two CPUs", Params{CPUs: 2}},
		{"three CPUs", Params{CPUs: 3}},
		{"most", Params{CPUs: MaxCPUs, MaxProbes: MaxID, RingSize: 4 << 20}},
		{"spare", Params{CPUs: 3, RingSize: MinOverwrite, Overwrite: true, Spare: true}},
		{"most, spare", Params{CPUs: MaxCPUs, MaxProbes: MaxID, RingSize: 4 << 20, Overwrite: true, Spare: true}},
		{"least", Params{CPUs: 1, MaxProbes: 1, RingSize: MinRingSize, Fallback: 1, Instances: 1, Code: 1, MaxMaps: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := New(tt.p)
			if err != nil {
				t.Fatal(err)
			}
			var at int64
			for i, s := range l.sections() {
				if s.Off != at || s.Off%PageSize != 0 || s.Size <= 0 {
					t.Errorf("section %d at %#x+%#x, the one before ends at %#x", i+1, s.Off, s.Size, at)
				}
				at = s.End()
			}
			if at != l.Size {
				t.Errorf("size %d, sections end at %d", l.Size, at)
			}
			p := tt.p.complete()
			if l.CPUs < p.CPUs || l.CPUs&(l.CPUs-1) != 0 || int(l.CPUMask) != l.CPUs-1 {
				t.Errorf("%d areas, mask %#x for %d CPUs", l.CPUs, l.CPUMask, p.CPUs)
			}
			last := uint32(l.MaxProbes)
			if end := l.Counter(l.Areas(), last, 0) + CounterSize; end > l.PerCPU.End() {
				t.Errorf("the reader's last counter ends at %#x, its section at %#x", end, l.PerCPU.End())
			}
			if l.Counter(0, last, 0)+CounterSize > l.Area(1) {
				t.Error("counters reach into the next CPU's area")
			}
			if l.RingData(l.NumRings()-1)+l.RingSize+Slack > l.Rings.End() {
				t.Error("the last ring's slack is outside")
			}
			if l.Probe(last)+ProbeSize > l.Probes.End() || l.Flag(last)+4 > l.Flags.End() ||
				l.Site(p.MaxProbes)+SiteSize > l.Sites.End() || l.Map(p.MaxMaps-1)+MapSize > l.Maps.End() {
				t.Error("a table's last entry is outside")
			}
		})
	}
}

func TestParamsRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    Params
	}{
		{"negative CPUs", Params{CPUs: -1}},
		{"too many CPUs", Params{CPUs: MaxCPUs + 1}},
		{"too many probes", Params{MaxProbes: MaxID + 1}},
		{"negative probes", Params{MaxProbes: -1}},
		{"ring not a power of two", Params{RingSize: 3 << 20}},
		{"ring too small", Params{RingSize: MinRingSize / 2}},
		{"ring too big", Params{RingSize: 2 * MaxRingSize}},
		{"negative fallback table", Params{Fallback: -1}},
		{"negative maps", Params{MaxMaps: -1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := New(tt.p); !errors.Is(err, ErrParams) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestStateWord(t *testing.T) {
	for _, tt := range []struct {
		id    uint32
		units int
	}{{1, 2}, {MaxID, MaxUnits}, {1, MaxUnits}, {MaxID, 2}, {4711, 5}, {1 << 19, 1536}, {1<<19 + 1, 1544}, {MaxID, 1535}} {
		for _, commit := range []bool{false, true} {
			w := StateWord(tt.id, tt.units)
			if commit {
				w = CommitWord(tt.id, tt.units)
			}
			id, units, c := SplitState(w)
			if id != tt.id || units != tt.units || c != commit || w == 0 {
				t.Errorf("%+v, %v → %#x → %d, %d, %v", tt, commit, w, id, units, c)
			}
		}
	}
	if id, units, c := SplitState(SkipWord(7)); id != 0 || units != 7 || !c {
		t.Errorf("skip of 7: %d, %d, %v", id, units, c)
	}
	for n, want := range map[int]int{0: 2, 1: 3, 8: 3, 9: 4, 24: 5, ExactSize - HeaderSize: 1536, ExactSize - HeaderSize + 1: 1544, MaxRecord - HeaderSize: MaxUnits} {
		if got := Units(n); got != want {
			t.Errorf("Units(%d) = %d, want %d", n, got, want)
		}
	}
	// Every length that a record may have comes back, and no other fits the slack.
	for units := range MaxUnits + 1 {
		fit := FitUnits(units)
		if _, got, _ := SplitState(StateWord(1, fit)); got != fit || fit < units || fit >= units+CoarseUnit/Unit {
			t.Fatalf("%d units: %d, read back as %d", units, fit, got)
		}
	}
	for length := uint32(0); length <= LengthMask; length++ {
		if _, units, _ := SplitState(length<<LengthShift | 1); units > MaxUnits || units*Unit > Slack {
			t.Fatalf("a length of %d is %d units", length, units)
		}
	}
}

// A session that begins with many probes has room for as many again, and a file laid out
// so is taken for one.
func TestForProbes(t *testing.T) {
	for n, want := range map[int]int{0: DefaultMaxProbes, 32767: DefaultMaxProbes, 32768: 1<<17 - 1, 78_144: 1<<18 - 1, 1 << 17: 1<<19 - 1, 1 << 18: MaxID, 1_000_000: MaxID, MaxID: MaxID} {
		p := ForProbes(n)
		p.CPUs = 2
		l, err := New(p)
		if err != nil || l.MaxProbes != want {
			t.Fatalf("for %d probes: %+v (%v), want room for %d", n, l, err, want)
		}
		if got := l.Sites.Size / SiteSize; got < int64(want) {
			t.Errorf("for %d probes: room for %d changes", n, got)
		}
		page := (&Header{Base: 0x7f0000000000, Target: 1}).Encode(l)
		_, back, err := ReadHeader(bytes.NewReader(page), 2)
		if err != nil || *back != *l {
			t.Errorf("for %d probes: read back %+v (%v), want %+v", n, back, err, l)
		}
	}
	page := (&Header{}).Encode(mustNew(t, Params{CPUs: 2, MaxProbes: 70_000}))
	if _, _, err := ReadHeader(bytes.NewReader(page), 2); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a file for 70,000 probes: %v", err)
	}
}

// TestDumped: a file that core dumps have is a fraction of one that they don't have, unless it is for many probes, and is
// taken for a session's.
func TestDumped(t *testing.T) {
	for _, tt := range []struct{ probes, room int }{{0, 4095}, {1, 4095}, {2047, 4095}, {2048, 8191}, {32767, DefaultMaxProbes}, {40_000, 1<<17 - 1}} {
		p := ForProbes(tt.probes)
		p.CPUs, p.Overwrite, p.Book = 64, true, 64<<20
		most := mustNew(t, p)
		p.Dumped(tt.probes)
		l := mustNew(t, p)
		if l.MaxProbes != tt.room || l.Sites.Size/SiteSize < int64(tt.room) {
			t.Errorf("for %d probes: room for %d, and %d changes", tt.probes, l.MaxProbes, l.Sites.Size/SiteSize)
		}
		if rest := l.Code.Off - l.Rings.Size; tt.room == 4095 && rest > (most.Code.Off-most.Rings.Size)/8 {
			t.Errorf("for %d probes: %d MB besides the rings", tt.probes, rest>>20)
		}
		page := (&Header{Base: 0x7f0000000000, Target: 1}).Encode(l)
		if _, back, err := ReadHeader(bytes.NewReader(page), 64); err != nil || *back != *l {
			t.Errorf("for %d probes: read back %+v (%v), want %+v", tt.probes, back, err, l)
		}
	}
}

func mustNew(t *testing.T, p Params) *Layout {
	t.Helper()
	l, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Detours are compiled against these numbers, and a file outlives the kprobe
// that made it.
func TestFormatIsFixed(t *testing.T) {
	l, err := New(Params{CPUs: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name      string
		got, want int64
	}{
		{"tid", TIDOff, 4}, {"time", TimeOff, 8}, {"data", DataOff, 16},
		{"head", HeadOff, 0}, {"data pointer", DataPtr, 16}, {"mask", MaskOff, 24}, {"tail", TailOff, 64},
		{"counters", CountersOff, 4096}, {"counter", CounterSize, 56}, {"sequences' words", SeqOff, 128}, {"sequences' counters", CounterSeq, 32},
		{"lost", CounterLost, 16}, {"missed", CounterMissed, 24}, {"limited", CounterLimited, 48},
		{"given", ReaderGiven, 0}, {"seen", ReaderSeen, 8}, {"given up", ReaderLost, 16},
		{"area shift", int64(l.AreaShift), 23}, {"slack", Slack, 32768},
		{"flags", l.Flags.Off, 0x1000}, {"probes", l.Probes.Off, 0x41000}, {"sites", l.Sites.Off, 0x1041000},
		{"stamp", StampSize, 8}, {"claimed", ClaimOff, 72}, {"overwritten", OverOff, 80}, {"up to", OverTo, 88}, {"taken", TakenSize, 32}, {"taken in sequences", TakenSeq, 16}, {"mode", ModeOff, 124},
		{"version", Version, 10}, {"version before", versionBefore, 9}, {"group", GroupOff, 16}, {"site's group", SiteGroupOff, 112},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %#x, want %#x", tt.name, tt.got, tt.want)
		}
	}
}
