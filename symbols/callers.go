package symbols

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// call is a call instruction: where it leads, and where it returns to.
type call struct{ to, back Vaddr }

// CallsOf returns the addresses to which the file's calls of a function return. They are found
// by their bytes, wherever these are, so some may not be calls. No call with the function's
// address in the instruction is omitted. It is safe for concurrent use.
func (f *File) CallsOf(v Vaddr) []Vaddr {
	list := f.calls.get(f.findCalls)
	i, _ := slices.BinarySearchFunc(list, v, func(c call, v Vaddr) int { return cmp.Compare(c.to, v) })
	var out []Vaddr
	for ; i < len(list) && list[i].to == v; i++ {
		out = append(out, list[i].back)
	}
	return out
}

// findCalls goes through the file's code once, for all functions.
func (f *File) findCalls() (out []call) {
	var err error
	defer rescue(f.Path, &err)
	ranges := f.fdes()
	if len(ranges) == 0 {
		return nil
	}
	for _, c := range f.code {
		b, err := f.im.at(c.start, uint64(c.end-c.start), "code")
		if err != nil {
			continue
		}
		for i := 0; i+5 <= len(b); i++ {
			if b[i] != 0xe8 {
				continue
			}
			back := c.start + Vaddr(i+5)
			to := back + Vaddr(int64(int32(binary.LittleEndian.Uint32(b[i+1:]))))
			if _, ok := startAt(ranges, to); ok {
				out = append(out, call{to, back})
			}
		}
	}
	slices.SortFunc(out, func(a, b call) int { return cmp.Or(cmp.Compare(a.to, b.to), cmp.Compare(a.back, b.back)) })
	return out
}
