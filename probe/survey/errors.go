package survey

import (
	"fmt"

	"kprobe/symbols"
)

// RefusedError says that an address can't be probed, and by which rule.
type RefusedError struct {
	Addr  symbols.Addr
	Place string // how to name the address, SYM+0xoff
	Rule  string // the reason: a clause that completes "PLACE can't be probed: "
	// Many says it of several places, for patterns that leave them out and say how many
	// they are; "" where that isn't said.
	Many string
}

func (e *RefusedError) Error() string {
	s := e.Place
	if s == "" {
		s = e.Addr.String()
	}
	return s + " can't be probed: " + e.Rule
}

// BoundaryError says that an address lies inside an instruction. Its text
// names the boundaries around it, in a form that is accepted as a place.
type BoundaryError struct {
	Addr          symbols.Addr
	Place         string // as asked
	Before, After string // the places of the instructions around it
}

func (e *BoundaryError) Error() string {
	return fmt.Sprintf("%s is inside an instruction: the nearest boundaries are %s and %s", e.Place, e.Before, e.After)
}
