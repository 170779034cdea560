package assess

import (
	"errors"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/plan"
	"kprobe/probe/results"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// inspectAll gives all of what Inspect lists.
func inspectAll(space *symbols.Space, p symbols.Place) (list []*results.Listing, err error) {
	err = Inspect(space, p, func(l *results.Listing) error {
		list = append(list, l)
		return nil
	})
	return list, err
}

func inspectFile(t *testing.T, path, fn string) []*results.Listing {
	t.Helper()
	space, err := symbols.OpenFileSpace(path)
	if err != nil {
		t.Fatal(err)
	}
	ls, err := inspectAll(space, symbols.Place{Symbol: fn})
	if err != nil {
		t.Fatal(err)
	}
	return ls
}

// TestInspectKinds wants a reason of each instruction that is no jump, and few of them.
func TestInspectKinds(t *testing.T) {
	path := fixture.Build(t, "probe_calls.c", "-O2")
	count := map[results.Kind]int{}
	for _, l := range inspectFile(t, path, "*") {
		for _, in := range l.Lines {
			count[in.Probe]++
			switch {
			case in.Probe >= results.KindShortJump && !in.Tactic.Jump(),
				in.Probe < results.KindShortJump && in.Tactic.Jump():
				t.Errorf("%s+%#x: %v by %v", l.Name, in.Offset, in.Probe, in.Tactic)
			case in.Probe < results.KindJump && in.Why == "":
				t.Errorf("%s+%#x: %v without a reason", l.Name, in.Offset, in.Probe)
			case in.Offset > 0 && in.Tactic == plan.Single && len(in.Bytes) < plan.JumpLen:
				t.Errorf("%s+%#x: single with %d bytes", l.Name, in.Offset, len(in.Bytes))
			}
		}
	}
	total := 0
	for _, n := range count {
		total += n
	}
	if jumps := count[results.KindJump] + count[results.KindGuarded] + count[results.KindShortJump]; jumps*100 < total*97 {
		t.Errorf("%d of %d instructions would be jumps: %v", jumps, total, count)
	}
}

// TestInspectGlob wants of a glob what each of its functions gives alone.
func TestInspectGlob(t *testing.T) {
	path := fixture.Build(t, "probe_calls.c", "-O2")
	for _, l := range inspectFile(t, path, "*") {
		if l.Name == "" || strings.ContainsAny(l.Name, "@*") {
			continue
		}
		space, err := symbols.OpenFileSpace(path)
		if err != nil {
			t.Fatal(err)
		}
		alone, err := inspectAll(space, symbols.Place{Kind: symbols.PlaceAddr, Value: uint64(l.Lines[0].Addr)})
		if err != nil {
			t.Errorf("%s: %v", l.Name, err)
			continue
		}
		if len(alone) != 1 || len(alone[0].Lines) != len(l.Lines) {
			t.Fatalf("%s: %d listings", l.Name, len(alone))
		}
		for i, in := range alone[0].Lines {
			if w := l.Lines[i]; in.Probe != w.Probe || in.Tactic != w.Tactic || in.Text != w.Text || in.Addr != w.Addr {
				t.Errorf("%s+%#x: %v by %v alone, %v by %v in a glob", l.Name, in.Offset, in.Probe, in.Tactic, w.Probe, w.Tactic)
			}
		}
	}
}

// TestInspectEnds has the caller end the listing of a glob: its error is returned,
// and nothing more is listed.
func TestInspectEnds(t *testing.T) {
	space, err := symbols.OpenFileSpace(fixture.Build(t, "probe_calls.c", "-O2"))
	if err != nil {
		t.Fatal(err)
	}
	enough, n := errors.New("enough"), 0
	err = Inspect(space, symbols.Place{Symbol: "*"}, func(*results.Listing) error {
		if n++; n == 3 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || n != 3 {
		t.Errorf("%d functions, %v", n, err)
	}
}

func TestInspectInside(t *testing.T) {
	path := fixture.Build(t, "probe_calls.c", "-O2")
	l := inspectFile(t, path, "main")[0]
	for _, in := range l.Lines {
		if len(in.Bytes) < 2 {
			continue
		}
		space, err := symbols.OpenFileSpace(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = inspectAll(space, symbols.Place{Symbol: "main", Offset: int64(in.Offset) + 1})
		var inside *survey.BoundaryError
		if !errors.As(err, &inside) {
			t.Fatalf("main+%#x: %v, want a *survey.BoundaryError", in.Offset+1, err)
		}
		if inside.Addr != in.Addr+1 {
			t.Errorf("the error is about %v, want %v", inside.Addr, in.Addr+1)
		}
	}
}

func TestInspectNonPIE(t *testing.T) {
	path := fixture.Build(t, "probe_calls.c", "-O2", "-no-pie", "-fno-pie")
	for _, in := range inspectFile(t, path, "main")[0].Lines {
		if in.Addr < 0x400000 || in.Addr > 0x500000 {
			t.Errorf("%v is no address of the file", in.Addr)
		}
		if in.Tactic == plan.Single && in.Probe != results.KindJump {
			t.Errorf("%v: %v", in.Addr, in.Probe)
		}
	}
}
