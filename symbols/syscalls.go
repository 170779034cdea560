package symbols

import "bytes"

// syscallCode is the encoding of the system call instruction.
var syscallCode = []byte{0x0f, 0x05}

// Syscalls lists the addresses in the file's code at which the bytes of a system call
// instruction stand, wherever instructions start.
func (f *File) Syscalls() (out []Vaddr) {
	for _, c := range f.code {
		for from := c.start; from < c.end; from += scanned {
			b, err := f.im.at(from, uint64(min(c.end-from, scanned+1)), "code")
			for off := 0; err == nil; off++ {
				n := bytes.Index(b[off:], syscallCode)
				if n < 0 {
					break
				}
				off += n
				out = append(out, from+Vaddr(off))
			}
		}
	}
	return out
}
