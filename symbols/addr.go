// Package symbols says what lies where in a process or a file: its modules, their symbols,
// functions and names, and which addresses a probe place means.
//
// It reads files and /proc. It never traces, stops or changes a process. The contents of a
// process's memory reach it through Memory.
package symbols

import (
	"errors"
	"strconv"
)

// Addr is an address in the traced process, as in /proc/PID/maps.
type Addr uint64

// Vaddr is an address as the ELF file states it: in its program headers, its
// symbols, and the listing of objdump -d. Addr = Vaddr + the module's bias.
type Vaddr uint64

// Off is an offset in bytes from the start of a file.
type Off uint64

// String returns the address in hexadecimal with 0x.
func (a Addr) String() string { return "0x" + strconv.FormatUint(uint64(a), 16) }

// String returns the address in hexadecimal with 0x.
func (v Vaddr) String() string { return "0x" + strconv.FormatUint(uint64(v), 16) }

// String returns the offset in hexadecimal with 0x.
func (o Off) String() string { return "0x" + strconv.FormatUint(uint64(o), 16) }

// Memory is the memory of a process, a core file or a test.
type Memory interface {
	// ReadMemory fills b from at on. It returns how many bytes could be read
	// from the start of b; n < len(b) always comes with an error, and bytes
	// past n are unspecified. A failed read is never zeros.
	ReadMemory(b []byte, at Addr) (n int, err error)
}

// ErrLatePage is wrapped by errors of reads of memory that is mapped but not present, and that
// nobody brought in time: its contents are not known.
var ErrLatePage = errors.New("the page could not be read in time")
