package symbols

import (
	"debug/elf"
	"slices"
	"weak"

	"kprobe/symbols/unwind"
)

// fde is a range of code that one entry of .eh_frame describes: mostly a
// function, or the cold part of one.
type fde struct{ start, end Vaddr }

// fdes reads the ranges of .eh_frame, in ascending order and without duplicates. At damaged data it returns the
// ranges before that.
func (im *image) fdes() []fde {
	frames := im.ehFrame()
	if frames == nil {
		return nil
	}
	n := 0
	frames.Ranges(func(uint64, uint64) bool { n++; return true })
	all := make([]fde, 0, n)
	frames.Ranges(func(low, high uint64) bool {
		all = append(all, fde{Vaddr(low), Vaddr(high)})
		return true
	})
	slices.SortFunc(all, func(x, y fde) int {
		switch {
		case x.start < y.start:
			return -1
		case x.start > y.start:
			return 1
		case x.end > y.end: // of several ranges with one start the largest is kept
			return -1
		case x.end < y.end:
			return 1
		}
		return 0
	})
	return slices.CompactFunc(all, func(x, y fde) bool { return x.start == y.start })
}

// ehFrame is .eh_frame; nil: the file has none. Who asks while another holds it, such as by an unwind.Table, gets
// the same; else it is read.
func (im *image) ehFrame() *unwind.Section {
	im.mu.Lock()
	eh := im.eh.Value()
	im.mu.Unlock()
	if eh != nil {
		return eh
	}
	b, base := im.readEHFrame()
	if b == nil {
		return nil
	}
	eh = &unwind.Section{Bytes: b, Addr: uint64(base), EH: true}
	im.mu.Lock()
	defer im.mu.Unlock()
	if other := im.eh.Value(); other != nil {
		return other
	}
	im.eh = weak.Make(eh)
	return eh
}

// readEHFrame reads the contents of .eh_frame and its address, found by its section
// or else through PT_GNU_EH_FRAME (LSB, "Exception Frames").
func (im *image) readEHFrame() ([]byte, Vaddr) {
	if s := im.section(".eh_frame"); s != nil {
		if b, err := im.data(s); err == nil && b != nil {
			return b, s.addr
		}
	}
	seg := im.segmentOf(elf.PT_GNU_EH_FRAME)
	if seg == nil {
		return nil, 0
	}
	hdr, err := im.bytes(seg.off, min(seg.filesz, 64), "the unwinding header")
	if err != nil || len(hdr) < 8 || hdr[0] != 1 {
		return nil, 0
	}
	at, ok := unwind.Pointer(hdr, 4, hdr[1], uint64(seg.vaddr))
	if !ok {
		return nil, 0
	}
	b, err := im.at(Vaddr(at), maxSection, "the unwinding information")
	if err != nil {
		return nil, 0
	}
	return b, Vaddr(at)
}
