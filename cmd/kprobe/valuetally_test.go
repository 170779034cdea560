package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// tally counts values that were compared.
type tally struct {
	equal, wrong int
	refused      int  // said to be optimized out, or not to be had
	partly       int  // values of which parts are said to be optimized out, and the others are equal
	left         int  // members that are left out, as their value is said to be cut
	cut          int  // lists that end early, and say so
	faults       bool // parts that print as (fault) are refused

	limited []string               // the values of a hit that are said to be cut
	lacking func(path string) bool // if not nil: whether a value, EVENT N.VALUE…, may be null or have parts that are
}

func (n *tally) add(m tally) {
	n.equal, n.wrong, n.refused = n.equal+m.equal, n.wrong+m.wrong, n.refused+m.refused
	n.partly, n.left, n.cut = n.partly+m.partly, n.left+m.left, n.cut+m.cut
}

// String tells the numbers.
func (n tally) String() string {
	return fmt.Sprintf("%d values are equal, %d differ, %d can't be had; of %d there are parts, %d members and the ends of %d lists are beyond limits",
		n.equal, n.wrong, n.refused, n.partly, n.left, n.cut)
}

// differences reports each value that isn't what the program says, and counts those
// that it says. What it doesn't say is not compared.
func (n *tally) differences(t *testing.T, where string, have, want map[string]any, gone bool) {
	t.Helper()
	for name, w := range want {
		h, ok := have[name]
		inner, isMap := w.(map[string]any)
		if m, split := members(have, name); !ok && split { // $params tells of the members
			n.differences(t, where+"."+name, m, inner, true)
			continue
		}
		inside := strings.Contains(where, ".")
		switch {
		case !ok && inside && n.isLimited(where):
			n.left++
			continue
		case !ok && gone && !inside, gone && h == nil: // it can't be had
			n.refused++
			continue
		}
		m, alsoMap := h.(map[string]any)
		switch {
		case !ok:
			n.wrong++
			t.Errorf("%s: no %s in %v", where, name, have)
		case isMap && alsoMap:
			n.differences(t, where+"."+name, m, inner, gone)
		case reflect.DeepEqual(plainValue(h), plainValue(w)):
			n.equal++
		case isCut(h) && n.faults && begins([]any(h.(cutList)), w):
			n.cut++
		case n.faults && lacks(h) && agrees(h, w) && (n.lacking == nil || n.lacking(where+"."+name)):
			n.partly++
		default:
			n.wrong++
			t.Errorf("%s: %s is %v, the program says %v", where, name, h, w)
		}
	}
}

// isLimited reports a place in a value of which the hit says that it is cut: EVENT N.VALUE….
func (n *tally) isLimited(where string) bool {
	_, name, _ := strings.Cut(where, ".")
	return slices.ContainsFunc(n.limited, func(cut string) bool { return name == cut || strings.HasPrefix(name, cut+".") })
}

func isCut(v any) bool {
	_, ok := v.(cutList)
	return ok
}
