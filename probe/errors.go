package probe

import (
	"errors"
	"fmt"

	"kprobe/fetch"
	"kprobe/symbols"
)

// ErrClosed is returned by the methods of a session that was closed.
var ErrClosed = errors.New("the session is closed")

// DefError says which definition could not be armed. Its cause is one of
// symbols', fetch's or this package's errors.
type DefError struct {
	Def *fetch.Def
	Err error
}

func (e *DefError) Error() string { return fmt.Sprintf("%s: %v", e.Def.Text, e.Err) }

// Unwrap returns the cause.
func (e *DefError) Unwrap() error { return e.Err }

// RefusedError says that an address can't be probed, and by which rule.
type RefusedError struct {
	Addr  symbols.Addr
	Place string // how to name the address, SYM+0xoff
	Insn  string // the instruction there, "" when unknown
	Rule  string // the reason: a clause that completes "PLACE can't be probed: "
}

func (e *RefusedError) Error() string {
	s := e.Place
	if s == "" {
		s = e.Addr.String()
	}
	if e.Insn != "" {
		s += " (" + e.Insn + ")"
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
