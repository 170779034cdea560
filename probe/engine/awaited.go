package engine

import (
	"maps"
	"slices"

	"kprobe/symbols"
)

// awaited is what an address space lacks and may get: definitions that wait until their
// file is mapped, and probes whose library was unloaded.
type awaited struct {
	defs []*pendingDef
	gone map[*Placed]bool
	libs *libraries // the watch on the loader; nil: none
}

// pendingDef is a definition that waits for its file.
type pendingDef struct {
	*Definition
	err  error // why it could not be armed when it was last tried
	said bool  // the user was told
	// more says that it is armed, and has places yet to come, in another copy of
	// its library.
	more bool
	// constructor is where it waits for the library's thread-local blocks.
	constructor symbols.Addr
}

// any reports whether a library that comes may bring places.
func (a *awaited) any() bool { return len(a.defs)+len(a.gone) > 0 }

// anyGlob reports whether a pattern waits: nobody has counted its places.
func (a *awaited) anyGlob() bool {
	return slices.ContainsFunc(a.defs, func(p *pendingDef) bool { return p.Def.Place.IsGlob() })
}

func (a *awaited) add(p ...*pendingDef) { a.defs = append(a.defs, p...) }

// take gives the definitions that wait, and has none wait any more.
func (a *awaited) take() []*pendingDef {
	list := a.defs
	a.defs = nil
	return list
}

// remove has definitions wait no longer.
func (a *awaited) remove(goes map[defKey]bool) {
	a.defs = slices.DeleteFunc(a.defs, func(p *pendingDef) bool { return goes[p.key()] })
}

// goneOf gives the places of definitions that are gone.
func (a *awaited) goneOf(defs map[defKey]bool) (gone []*Placed) {
	for p := range a.gone {
		if defs[p.key()] {
			gone = append(gone, p)
		}
	}
	return gone
}

// lost notes a place whose library was unloaded.
func (a *awaited) lost(p *Placed) {
	if a.gone == nil {
		a.gone = map[*Placed]bool{}
	}
	a.gone[p] = true
}

// definitions are those that wait.
func (a *awaited) definitions() []*Definition {
	out := make([]*Definition, len(a.defs))
	for i, p := range a.defs {
		out[i] = p.Definition
	}
	return out
}

// keys is the set of the definitions that wait.
func (a *awaited) keys() map[defKey]bool {
	out := make(map[defKey]bool, len(a.defs))
	for _, p := range a.defs {
		out[p.key()] = true
	}
	return out
}

// unseen are the definitions that wait and have no place by which they are seen: none is
// armed, and none was there before its library was unloaded.
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

// goneByDef gives the places that definitions had.
func (a *awaited) goneByDef() map[defKey][]*Placed { return byDef(maps.Keys(a.gone)) }
