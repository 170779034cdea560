package vars

import (
	"encoding/hex"
	"strings"
	"testing"

	"kprobe/fetch"
)

// TestPrologue follows parameters through stores, spills that are loaded again and
// the caller's stack; what may have changed on the way has no origin.
func TestPrologue(t *testing.T) {
	const sp, bp = fetch.SP, fetch.BP
	stack := func(off int64) origin { return stackOrigin(off) }
	for _, c := range []struct {
		name, code string
		base       fetch.Reg
		disp, size int64
		want       origin
	}{
		{"a register", "4883ec20 48897c2408", sp, 8, 8, origin(fetch.DI)},
		{"a spill, loaded again", "4883ec20 44894c2410 8b4c2410 884c2408", sp, 8, 1, origin(fetch.R9)},
		{"a spill that was overwritten", "4883ec20 44894c2410 c744241001000000 8b4c2410 884c2408", sp, 8, 1, fromNowhere},
		{"a spill beside a store to anywhere", "4883ec20 44894c2410 8907 8b4c2410 884c2408", sp, 8, 1, fromNowhere},
		{"a word of the caller's stack", "4883ec20 488b442430 4889442408", sp, 8, 8, stack(16)},
		{"the return address is none", "4883ec20 488b442420 4889442408", sp, 8, 8, fromNowhere},
		{"behind a frame pointer", "55 4889e5 4883ec10 488b4510 488945f8", bp, -8, 8, stack(8)},
		{"a stack that was aligned", "4883e4e0 4883ec20 488b442430 4889442408", sp, 8, 8, fromNowhere},
		{"stored before the stack moves", "48897c24f8 4883ec20", sp, 0x18, 8, origin(fetch.DI)},
	} {
		var p prologueCode
		p.code, _ = hex.DecodeString(strings.ReplaceAll(c.code, " ", ""))
		p.run()
		if got, ok := p.first(c.base, c.disp, c.size); got != c.want && ok || ok != (c.want != fromNowhere) {
			t.Errorf("%s: from %d, %v; want %d", c.name, got, ok, c.want)
		}
	}
	for code, reads := range map[string]bool{"31": false, "8944": false, "4801": false, "01c7": true} {
		var p prologueCode
		p.code, _ = hex.DecodeString(code)
		if p.run(); p.used[fetch.AX] != reads {
			t.Errorf("%s reads rax: %v", code, !reads)
		}
	}
	var p prologueCode
	p.code, _ = hex.DecodeString("4883ec20" + "c744243805000000")
	p.run()
	if got, ok := p.untouched(sp, 0x30, 8); !ok || got != stack(16) {
		t.Errorf("left where the caller put it: %d, %v", got, ok)
	}
	if got, ok := p.untouched(sp, 0x38, 8); ok {
		t.Errorf("overwritten: %d", got)
	}
}
