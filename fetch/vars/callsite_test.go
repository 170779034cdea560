package vars

import (
	"testing"

	"kprobe/fetch"
	"kprobe/symbols/unwind"
)

// TestCallersExpressions: what a call has passed is told where it is made of a
// register that stays and a distance, and where more is done to it, it isn't.
func TestCallersExpressions(t *testing.T) {
	for name, c := range map[string]struct {
		expr []byte
		ok   bool
	}{
		"a constant":                   {[]byte{opLit0 + 5}, true},
		"a register":                   {[]byte{opBreg0 + 3, 8}, true},
		"a register and two distances": {[]byte{opBreg0 + 3, 8, opPlusUconst, 4}, true},
		"memory at a register":         {[]byte{opBreg0 + 3, 8, opDeref}, false},
		"memory in the frame":          {[]byte{opBreg0 + 7, 8, opDeref}, false},
		"a register, negated":          {[]byte{opBreg0 + 3, 0, opNeg}, false},
		"a constant, inverted":         {[]byte{opLit0 + 5, opNot}, false},
		"half a distance":              {[]byte{opBreg0 + 3, 8, opPlusUconst}, false},
		"a register that calls change": {[]byte{opBreg0 + 2, 0}, false},
	} {
		caller := caller{f: &frame{}, row: &unwind.Row{}, cfa: register(fetch.SP)}
		if s, ok := caller.value(c.expr); ok != c.ok {
			t.Errorf("%s: %v, %v", name, s, ok)
		}
	}
}
