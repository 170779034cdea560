package symbols

import (
	"cmp"
	"slices"
)

// shareFrom is the size in bytes from which on dynamic names are searched among those of all symbols. A large program
// that exports its functions has 5 MB.
const shareFrom = 256 << 10

// likeAddress is how many symbols of one address are looked at for a name.
const likeAddress = 16

// share makes the symbols of a table use the names of the full table, if that has the same name for the same address. The
// other names are copied, and the table's own names are freed. It must be called after everything that
// refers to them has been read (readVersions). If this would take more memory, the table doesn't change.
func (t *table) share(full *table) {
	type named struct {
		at   Vaddr
		name uint32
	}
	order := make([]named, 0, len(full.symbols))
	for i := range full.symbols {
		if s := &full.symbols[i]; s.named() {
			order = append(order, named{s.vaddr, s.name})
		}
	}
	slices.SortFunc(order, func(a, b named) int { return cmp.Compare(a.at, b.at) })
	shared := func(at Vaddr, name string) (off uint32, ok bool) {
		i, _ := slices.BinarySearchFunc(order, at, func(a named, v Vaddr) int { return cmp.Compare(a.at, v) })
		for _, n := range order[i:min(i+likeAddress, len(order))] {
			if n.at != at {
				break
			}
			if text := full.text(n.name); len(text) > len(name) && text[len(name)] == 0 && text[:len(name)] == name {
				return n.name, true
			}
		}
		return 0, false
	}
	var more []byte
	names := make([]uint32, len(t.symbols))
	for i := range t.symbols {
		s := &t.symbols[i]
		name := t.name(s)
		switch off, ok := shared(s.vaddr, name); {
		case s.file != 0, len(more) > len(t.names):
			return
		case s.name == 0 || name == "":
		case ok:
			names[i] = off
		default:
			names[i] = uint32(len(full.names) + len(more))
			more = append(append(more, name...), 0)
		}
	}
	for i, off := range names {
		t.symbols[i].name = off
	}
	t.names, t.more, t.shares = full.names, string(more), full
}
