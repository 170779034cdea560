package symbols

import (
	"bytes"
	"iter"
)

// scanned is how much of a file is looked through at once, in bytes.
const scanned = 1 << 20

// eachPiece yields what the file has from an address up to end, in pieces of scanned bytes that lie in the same
// memory one after the other. Each but the last is followed by over bytes of the next. It ends at bytes that
// can't be read.
func (im *image) eachPiece(v, end Vaddr, over int) iter.Seq2[Vaddr, []byte] {
	return func(yield func(Vaddr, []byte) bool) {
		var b []byte
		for ; v < end; v += scanned {
			off, n, err := im.place(v, uint64(min(end-v, Vaddr(scanned+over))), "code or data")
			if err != nil || im.holds(off, n, "code or data") != nil {
				return
			}
			if uint64(cap(b)) < n {
				b = make([]byte, n)
			}
			if b = b[:n]; im.fill(b, off, "code or data") != nil || !yield(v, b) || end-v <= scanned {
				return
			}
		}
	}
}

// inCode returns the addresses in the file's code at which bytes stand, wherever
// instructions start.
func (f *File) inCode(pattern []byte) iter.Seq[Vaddr] {
	return func(yield func(Vaddr) bool) {
		for _, c := range f.code {
			for from, b := range f.im.eachPiece(c.start, c.end, len(pattern)-1) {
				for off := 0; ; off++ {
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
