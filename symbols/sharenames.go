package symbols

import (
	"cmp"
	"slices"
)

// shareFrom is how many bytes of dynamic names are worth the search for them among
// those of all symbols: a large program that exports its functions has 5 MB.
const shareFrom = 256 << 10

// likeAddress is how many symbols of one address are looked at for a name.
const likeAddress = 16

// share makes the names of a table those of the full one as far as they are there,
// for the same address, and keeps a copy of the others; its own names are let go. It
// comes after what else refers to them has been read (readVersions). A table whose
// names would take more so than they do stays as it is.
func (t *table) share(full *table) {
	order := make([]int32, 0, len(full.symbols))
	for i := range full.symbols {
		if full.symbols[i].named() {
			order = append(order, int32(i))
		}
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Compare(full.symbols[a].vaddr, full.symbols[b].vaddr)
	})
	shared := func(at Vaddr, name string) (off uint32, ok bool) {
		i, _ := slices.BinarySearchFunc(order, at, func(a int32, v Vaddr) int {
			return cmp.Compare(full.symbols[a].vaddr, v)
		})
		for _, n := range order[i:min(i+likeAddress, len(order))] {
			c := &full.symbols[n]
			if c.vaddr != at {
				break
			}
			if text := full.text(c.name); len(text) > len(name) && text[len(name)] == 0 && text[:len(name)] == name {
				return c.name, true
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
	t.names, t.more = full.names, string(more)
}
