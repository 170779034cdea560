package engine

import (
	"maps"
	"slices"

	"kprobe/symbols"
)

// awaited is what may be armed when the address space maps more files: definitions that wait for
// their file, and probes whose library was unloaded.
type awaited struct {
	defs []*pendingDef
	gone map[*Placed]bool // probes whose library was unloaded
	libs *libraries       // the watch on the loader; nil: none
}

// pendingDef is a definition that waits for its file.
type pendingDef struct {
	*Definition
	err  error // of the last attempt to arm it
	said bool  // the user was told err
	// more says that it is armed in one copy of its library, and waits for another copy.
	more bool
	// constructor is the address of the library's first constructor, where it waits for
	// thread-local blocks; 0: it doesn't.
	constructor symbols.Addr
}

// any reports whether a library that is loaded may bring places.
func (a *awaited) any() bool { return len(a.defs)+len(a.gone) > 0 }

// anyGlob reports whether a pattern waits, whose number of places isn't known.
func (a *awaited) anyGlob() bool {
	return slices.ContainsFunc(a.defs, func(p *pendingDef) bool { return p.Def.Place.IsGlob() })
}

func (a *awaited) add(p ...*pendingDef) { a.defs = append(a.defs, p...) }

// take empties the list of waiting definitions and returns it.
func (a *awaited) take() []*pendingDef {
	list := a.defs
	a.defs = nil
	return list
}

// remove removes definitions from the waiting ones.
func (a *awaited) remove(goes map[defKey]bool) {
	a.defs = slices.DeleteFunc(a.defs, func(p *pendingDef) bool { return goes[p.key()] })
}

// goneOf lists the probes of the given definitions whose library was unloaded.
func (a *awaited) goneOf(defs map[defKey]bool) (gone []*Placed) {
	for p := range a.gone {
		if defs[p.key()] {
			gone = append(gone, p)
		}
	}
	return gone
}

// lost notes a probe whose library was unloaded.
func (a *awaited) lost(p *Placed) {
	if a.gone == nil {
		a.gone = map[*Placed]bool{}
	}
	a.gone[p] = true
}

// definitions lists the waiting definitions.
func (a *awaited) definitions() []*Definition {
	out := make([]*Definition, len(a.defs))
	for i, p := range a.defs {
		out[i] = p.Definition
	}
	return out
}

// keys is the set of the waiting definitions.
func (a *awaited) keys() map[defKey]bool {
	out := make(map[defKey]bool, len(a.defs))
	for _, p := range a.defs {
		out[p.key()] = true
	}
	return out
}

// unseen lists the waiting definitions that have never had a place in this address space: no place
// is armed, and none was before its library was unloaded.
func (a *awaited) unseen() (list []*Definition) {
	gone := make(map[defKey]bool, len(a.gone))
	for p := range a.gone {
		gone[p.key()] = true
	}
	for _, p := range a.defs {
		if !p.more && !gone[p.key()] {
			list = append(list, p.Definition)
		}
	}
	return list
}

// goneByDef groups the probes whose library was unloaded by definition.
func (a *awaited) goneByDef() map[defKey][]*Placed { return byDef(maps.Keys(a.gone)) }
