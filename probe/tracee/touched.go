//go:build linux && amd64

package tracee

import (
	"encoding/binary"
	"iter"

	"kprobe/symbols"
)

// touchedGap is how many untouched pages between two touched ones are yielded with them, because
// a further read costs more than these pages do.
const touchedGap = 8

// Touched yields the parts of private memory without a file that may hold anything but zeros: those
// pages in [at, end) that somebody has touched, in order, and few others. It yields all of it if the
// kernel doesn't say. Reading an untouched page would give it memory, and takes a fault.
func (p *Process) Touched(at, end symbols.Addr) iter.Seq2[symbols.Addr, symbols.Addr] {
	return func(yield func(lo, hi symbols.Addr) bool) {
		f := p.pagemapFile()
		var lo, hi symbols.Addr // the part that was found last; none if lo == hi
		buf := make([]byte, pagemapEntry<<10)
		for a := at; a < end; {
			first := uint64(a) / pageSize
			n := min((uint64(end)-1)/pageSize-first+1, uint64(len(buf)/pagemapEntry))
			known := readPagemap(f, buf[:n*pagemapEntry], first)
			for i := range n {
				if known && binary.LittleEndian.Uint64(buf[i*pagemapEntry:])&(pagePresent|pageSwapped) == 0 {
					continue
				}
				page := symbols.Addr((first + i) * pageSize)
				if lo < hi && page > hi+touchedGap*pageSize {
					if !yield(lo, hi) {
						return
					}
					lo = page
				} else if lo == hi {
					lo = max(page, at)
				}
				hi = min(page+pageSize, end)
			}
			a = symbols.Addr((first + n) * pageSize)
		}
		if lo < hi {
			yield(lo, hi)
		}
	}
}
