// Package loader reads what a process's dynamic loader and C library reveal about themselves:
// where the loader announces what it loads, whether its list of libraries is complete, and
// where threads have their rseq areas.
//
// It reads the process's memory and files, and changes nothing. What it reads may be anything:
// addresses are the process's own, and must be checked where they are used.
package loader

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"kprobe/internal/procfs"
	"kprobe/symbols"
)

// Loader is where a process's loader tells debuggers what it does (r_debug of System
// V; <link.h>, of glibc and musl).
type Loader struct {
	// At is the function r_brk, which does nothing: it is called whenever the list of
	// libraries begins to change, and when it is whole again. 0: there is none.
	At symbols.Addr
	// State is the address of r_state; 0: not known.
	State symbols.Addr
}

// Offsets in struct r_debug, and a value of r_state, <link.h>.
const (
	debugBrk     = 16
	debugState   = 24
	rtConsistent = 0
)

// ErrNone says that no loader tells what is loaded.
var ErrNone = errors.New("it has no loader that tells what it loads")

// New gives the loader of an image of which nothing has run yet, by its symbols alone:
// fields of what it hasn't are 0.
func New(ld *symbols.Module) (l Loader) {
	if ld == nil || ld.File == nil {
		return Loader{}
	}
	if syms := ld.File.Lookup("_r_debug"); len(syms) > 0 {
		l.State = ld.Addr(syms[0].Vaddr) + debugState
	}
	if syms := ld.File.Lookup("_dl_debug_state"); len(syms) > 0 {
		l.At = ld.Addr(syms[0].Vaddr)
	}
	return l
}

// Running finds the loader of a program that runs. Errors are ErrNone, and those of
// reading the process.
func Running(space *symbols.Space, mem symbols.Memory) (Loader, error) {
	start, err := ReadStart(space.PID())
	if err != nil {
		return Loader{}, err
	}
	r, err := debugRecord(space.ModuleAt(start.Base), mem)
	if err != nil {
		return Loader{}, err
	}
	brk, err := word(mem, r+debugBrk)
	if err != nil {
		return Loader{}, err
	}
	if brk == 0 {
		return Loader{}, ErrNone
	}
	return Loader{At: symbols.Addr(brk), State: r + debugState}, nil
}

// debugRecord finds the loader's r_debug.
func debugRecord(ld *symbols.Module, mem symbols.Memory) (symbols.Addr, error) {
	if ld == nil || ld.File == nil {
		return 0, ErrNone
	}
	if syms := ld.File.Lookup("_r_debug"); len(syms) > 0 {
		return ld.Addr(syms[0].Vaddr), nil
	}
	// musl has a pointer to it.
	if syms := ld.File.Lookup("_dl_debug_addr"); len(syms) > 0 {
		r, err := word(mem, ld.Addr(syms[0].Vaddr))
		return symbols.Addr(r), err
	}
	return 0, ErrNone
}

// Whole reports whether the loader's list of libraries is known to be whole.
func (l Loader) Whole(mem symbols.Memory) bool {
	var b [4]byte
	_, err := mem.ReadMemory(b[:], l.State)
	return err == nil && binary.LittleEndian.Uint32(b[:]) == rtConsistent
}

// Start is what the kernel tells a program at its beginning.
type Start struct {
	Entry symbols.Addr // the program's entry point
	Base  symbols.Addr // of its loader; 0: it has none
}

// ReadStart reads it of a process, from its auxiliary vector.
func ReadStart(pid int) (Start, error) {
	b, err := os.ReadFile(procfs.Image(pid).Path("auxv"))
	if err != nil {
		return Start{}, fmt.Errorf("read how process %d began: %w", pid, err)
	}
	return parseStart(b), nil
}

// Keys of the auxiliary vector, <elf.h>.
const (
	atNull  = 0
	atBase  = 7
	atEntry = 9
)

func parseStart(b []byte) (s Start) {
	for ; len(b) >= 16; b = b[16:] {
		v := symbols.Addr(binary.LittleEndian.Uint64(b[8:]))
		switch binary.LittleEndian.Uint64(b) {
		case atBase:
			s.Base = v
		case atEntry:
			s.Entry = v
		case atNull:
			return s
		}
	}
	return s
}

// word reads eight bytes.
func word(mem symbols.Memory, at symbols.Addr) (uint64, error) {
	var b [8]byte
	if _, err := mem.ReadMemory(b[:], at); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}
