package probe

import (
	"errors"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// TestInspectLikeArmed wants a listing to promise what arming does, instruction
// by instruction: a jump where it says so, a breakpoint elsewhere.
func TestInspectLikeArmed(t *testing.T) {
	path := callsFixture(t)
	for _, fn := range []string{"work", "main"} {
		lists := inspectFile(t, path, fn)
		for _, in := range lists[0].Lines {
			if in.Probe == KindRefused {
				continue
			}
			sub := startSubject(t, path, "pair", "3")
			place := fn
			if in.Offset > 0 {
				place += "+" + symbols.Off(in.Offset).String()
			}
			l := attach(t, sub.pid(), Options{}, "p:x "+place)
			var got *placed
			for _, tg := range l.s.targets {
				got = tg.feed.ids[0]
			}
			if got.optimized != in.Tactic.Jump() {
				t.Errorf("%s (%s): optimized %v by %v (%s), but listed as %v, %v", place, in.Text, got.optimized, got.tactic, got.why, in.Probe, in.Tactic)
			}
			l.finish(sub.pid())
			_ = sub.cmd.Process.Kill()
			if testing.Short() && in.Offset > 32 {
				break
			}
		}
	}
}

func TestInspectKinds(t *testing.T) {
	path := callsFixture(t)
	count := map[Kind]int{}
	for _, l := range inspectFile(t, path, "*") {
		for _, in := range l.Lines {
			count[in.Probe]++
			switch {
			case in.Probe >= KindShortJump && !in.Tactic.Jump(),
				in.Probe < KindShortJump && in.Tactic.Jump():
				t.Errorf("%s+%#x: %v by %v", l.Name, in.Offset, in.Probe, in.Tactic)
			case in.Probe < KindJump && in.Why == "":
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
	if jumps := count[KindJump] + count[KindGuarded] + count[KindShortJump]; jumps*100 < total*97 {
		t.Errorf("%d of %d instructions would be jumps: %v", jumps, total, count)
	}
}

// TestInspectGlob wants of a glob what each of its functions gives alone.
func TestInspectGlob(t *testing.T) {
	path := callsFixture(t)
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
	space, err := symbols.OpenFileSpace(callsFixture(t))
	if err != nil {
		t.Fatal(err)
	}
	enough, n := errors.New("enough"), 0
	err = Inspect(space, symbols.Place{Symbol: "*"}, func(*Listing) error {
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
	path := callsFixture(t)
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
		var inside *BoundaryError
		if !errors.As(err, &inside) {
			t.Fatalf("main+%#x: %v, want a *BoundaryError", in.Offset+1, err)
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
		if in.Tactic == plan.Single && in.Probe != KindJump {
			t.Errorf("%v: %v", in.Addr, in.Probe)
		}
	}
}
