package debugreg

import (
	"fmt"

	"kprobe/symbols"
)

// MaxRegisters is how many pieces of memory a thread can watch.
const MaxRegisters = 4

// PlaceError says why memory can't be watched as it is asked for.
type PlaceError struct {
	Addr symbols.Addr
	Len  int
	Why  string
}

func (e *PlaceError) Error() string { return e.Why }

// Lengths reports whether a debug register can watch so many bytes.
func Lengths(n int) bool { return n == 1 || n == 2 || n == 4 || n == 8 }

// userEnd is the first address that is no program's (with four levels of pages; the
// kernel says where it has more).
const userEnd = 1 << 56

// Check says whether n bytes at an address can be watched: 1, 2, 4 or 8, at an
// address divisible by that. The error is a *PlaceError.
func Check(at symbols.Addr, n int) error {
	switch {
	case !Lengths(n):
		return &PlaceError{at, n, fmt.Sprintf("%d bytes can't be watched: the processor watches 1, 2, 4 or 8", n)}
	case uint64(at)%uint64(n) != 0:
		return &PlaceError{at, n, fmt.Sprintf("%d bytes at %v can't be watched: the address must be divisible by %d; %d can be there",
			n, at, n, largest(at))}
	case uint64(at) >= userEnd:
		return &PlaceError{at, n, fmt.Sprintf("%v is no address of a program", at)}
	}
	return nil
}

// largest is how many bytes can be watched at an address.
func largest(at symbols.Addr) int {
	for _, n := range []int{8, 4, 2} {
		if uint64(at)%uint64(n) == 0 {
			return n
		}
	}
	return 1
}

// FullError says that all debug registers are in use.
type FullError struct {
	Wanted string   // the event that got none
	Held   []string // the events that have them
}

func (e *FullError) Error() string {
	s := fmt.Sprintf("a processor watches %d places at a time, and %d are watched already:", MaxRegisters, len(e.Held))
	for i, name := range e.Held {
		if i > 0 {
			s += ","
		}
		s += " " + name
	}
	return s + "; delete or disable one"
}
