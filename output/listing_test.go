package output

import (
	"encoding/json"
	"strings"
	"testing"

	"kprobe/probe/plan"
	"kprobe/probe/results"
)

func sampleListing() *results.Listing {
	l := &results.Listing{Name: "work", Asked: 1}
	l.Func.Start, l.Func.End = 0x1000, 0x1009
	l.Lines = []results.Line{
		{Addr: 0x1000, Bytes: []byte{0x55}, Text: "push rbp", Probe: results.KindGuarded, Tactic: plan.Window, Why: "too short; not even that"},
		{Addr: 0x1001, Offset: 1, Bytes: []byte{1, 2, 3, 4, 5}, Text: "add eax, 1", Source: "t.c:12", Probe: results.KindJump, Tactic: plan.Pun, Why: "a target"},
		{Addr: 0x1006, Offset: 6, Bytes: []byte{0x0f, 0x05}, Text: "syscall", Probe: results.KindRefused, Why: "no; never"},
		{Addr: 0x1008, Offset: 8, Bytes: []byte{0xc3}, Text: "ret", Probe: results.KindBoosted, Tactic: plan.Breakpoint, Why: "no room"},
	}
	return l
}

func TestListingReasons(t *testing.T) {
	var b strings.Builder
	if err := ListingText(&b, sampleListing(), 0); err != nil {
		t.Fatal(err)
	}
	want := `work at 0x1000, 0x9 bytes:
   OFFSET  BYTES       INSTRUCTION  LINE    PROBE         WHY
     +0x0  55          push rbp             guarded-jump  too short
>    +0x1  0102030405  add eax, 1   t.c:12  jump
     +0x6  0f05        syscall              refused       no
     +0x8  c3          ret                  breakpoint    no room
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// TestListingJSON wants every reason, and the tactic of what is a jump.
func TestListingTactics(t *testing.T) {
	type line struct {
		Addr, Bytes, Asm, Line, Probe, Tactic, Why, Func string
		Off, Size                                        int
	}
	want := []line{
		{Addr: "0x1000", Size: 1, Bytes: "55", Asm: "push rbp", Probe: "guarded-jump", Tactic: "guarded window", Why: "too short; not even that", Func: "work"},
		{Addr: "0x1001", Off: 1, Size: 5, Bytes: "0102030405", Asm: "add eax, 1", Line: "t.c:12", Probe: "jump", Tactic: "punned jump", Why: "a target", Func: "work"},
		{Addr: "0x1006", Off: 6, Size: 2, Bytes: "0f05", Asm: "syscall", Probe: "refused", Why: "no; never", Func: "work"},
		{Addr: "0x1008", Off: 8, Size: 1, Bytes: "c3", Asm: "ret", Probe: "breakpoint", Why: "no room", Func: "work"},
	}
	dec := json.NewDecoder(strings.NewReader(string(AppendListingJSON(nil, sampleListing()))))
	for i, w := range want {
		var got line
		if err := dec.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if got != w {
			t.Errorf("line %d: got %+v, want %+v", i, got, w)
		}
	}
	if dec.More() {
		t.Error("more objects than instructions")
	}
}
