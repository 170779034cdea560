package planner

import (
	"encoding/hex"
	"strings"
	"testing"

	"kprobe/probe/assess"
	"kprobe/probe/detour"
	"kprobe/symbols"
)

// TestFlagsDead: a detour may change the flags only where the function makes all of them anew
// before it, or a handler of a fault's signal, can look.
func TestFlagsDead(t *testing.T) {
	for _, tt := range []struct {
		name, code string
		want       bool
	}{
		{"sub", "4883ec18", true},
		{"pushes, then a test", "41574156554889fb4885ff", true},
		{"xor", "31c0c3", true},
		{"a load may fault", "488b074885ff", false},
		{"a store may fault", "4889074885ff", false},
		{"it compares memory, which may fault", "48833f00", false},
		{"a push of memory may fault", "ff374885ff", false},
		{"adc reads the carry", "4811f8", false},
		{"a conditional jump reads them", "7402", false},
		{"setc reads them", "0f92c04885ff", false},
		{"pushf reads them", "9c4885ff", false},
		{"inc leaves the carry", "48ffc0c3", false},
		{"endbr64, then sub", "f30f1efa4883ec18", true},
		{"a shift by cl may leave them", "48d3e0c3", false},
		{"a call", "e800000000", false},
		{"a jump", "eb00", false},
		{"a return", "c3", false},
		{"a system call", "0f054885ff", false},
		{"more pushes than the frame is deep", "50505050505050505050505050505050504885ff", false},
		{"the code ends", "4889fb", false},
		{"no instruction", "06", false},
		{"not too far behind the entry", strings.Repeat("90", FlagsWay) + "31c0c3", true},
		{"too far behind the entry", strings.Repeat("90", FlagsWay+1) + "31c0c3", false},
	} {
		code, err := hex.DecodeString(tt.code)
		if err != nil {
			t.Fatal(err)
		}
		f := &assess.Function{Start: 0x1000, Code: code}
		at := func(kind Kind, addr symbols.Addr) []Request {
			return []Request{{Kind: kind, Place: &assess.Place{Site: symbols.Site{Addr: addr}}}}
		}
		o := planner{code: f, ground: &Ground{}}
		if got := o.flagsDead(at(Entry, 0x1000)); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
		arriving := at(Exit, 0x1000)
		if arriving[0].Passing = detour.Arrives; o.flagsDead(arriving) != tt.want {
			t.Errorf("%s: calls arrive, not %v", tt.name, tt.want)
		}
		if o.flagsDead(at(Return, 0x1000)) != tt.want {
			t.Errorf("%s: not %v for a return probe", tt.name, tt.want)
		}
		for _, ws := range [][]Request{nil, at(Exit, 0x1000), at(LoneExit, 0x1000), at(Entry, 0x1001), at(Entry, 0xfff), at(Return, 0x1001)} {
			if o.flagsDead(ws) {
				t.Errorf("%s: dead elsewhere, %v", tt.name, ws)
			}
		}
		if o.ground.FlagsRead = true; o.flagsDead(at(Entry, 0x1000)) {
			t.Errorf("%s: dead, though probes read them", tt.name)
		}
	}
}
