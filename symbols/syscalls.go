package symbols

import "slices"

// syscallCode is the encoding of the system call instruction.
var syscallCode = []byte{0x0f, 0x05}

// Syscalls lists the addresses in the file's code at which the bytes of a system call
// instruction stand, wherever instructions start.
func (f *File) Syscalls() []Vaddr { return slices.Collect(f.inCode(syscallCode)) }
