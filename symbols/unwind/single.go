package unwind

import "kprobe/symbols/dwread"

// Single computes the rules for an address from one entry of .eh_frame, which lies at the address entry. read returns up
// to n bytes at an address; nothing else of the section is read. ok is false if the entry is damaged, or doesn't describe
// pc.
func Single(pc, entry uint64, read func(at uint64, n int) []byte) (row Row, ok bool) {
	b := whole(entry, read)
	r := dwread.At(b, 0)
	r.Length()
	body := r.At
	id := r.Offset(false)
	if r.Bad || id == 0 || id > entry+body {
		return Row{}, false
	}
	at := entry + body - id
	p := parser{Section: &Section{Bytes: whole(at, read), Addr: at, EH: true}}
	c := p.readCIE(0)
	if c == nil {
		return Row{}, false
	}
	c.in = &Section{Bytes: b, Addr: entry, EH: true}
	f, ok := c.fde(&r, entry)
	if !ok {
		return Row{}, false
	}
	return (&Table{fdes: []fde{f}}).At(pc)
}

// maxEntry limits what is read of an entry.
const maxEntry = 1 << 20

// whole returns the bytes of the entry at an address; nil if they can't be read.
func whole(at uint64, read func(at uint64, n int) []byte) []byte {
	const usual = 64
	b := read(at, usual)
	r := dwread.At(b, 0)
	n := r.U32()
	if r.Bad || n == 0 || n > maxEntry {
		return nil
	}
	if n += r.At; n > uint64(len(b)) {
		b = read(at, int(n))
	}
	if uint64(len(b)) < n {
		return nil
	}
	return b[:n]
}
