package symbols

import (
	"bytes"
	"iter"
)

// scanned is how much of a file's code is looked through at once.
const scanned = 1 << 20

// inCode returns the addresses in the file's code at which bytes stand, wherever
// instructions start.
func (f *File) inCode(pattern []byte) iter.Seq[Vaddr] {
	return func(yield func(Vaddr) bool) {
		for _, c := range f.code {
			for from := c.start; from < c.end; from += scanned {
				b, err := f.im.at(from, uint64(min(c.end-from, scanned+Vaddr(len(pattern)-1))), "code")
				for off := 0; err == nil; off++ {
					n := bytes.Index(b[off:], pattern)
					if n < 0 {
						break
					}
					if off += n; !yield(from + Vaddr(off)) {
						return
					}
				}
			}
		}
	}
}
