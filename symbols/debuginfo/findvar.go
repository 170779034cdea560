package debuginfo

import (
	"debug/dwarf"
	"strings"
)

// FindVariable finds a variable outside of functions by its name, alone or with namespaces. It
// searches the unit near first, then all units, in which external variables come first. The
// entry has a location or a constant value. If near only declares the variable and no unit
// defines it, the entry is the declaration. Answers are cached, even if nothing was found.
func (d *Data) FindVariable(name string, near *Unit) (Entry, bool) {
	return d.variables.first(nameQuestion{name, near}, func() (Entry, bool) {
		last := lastWord(name)
		return d.findVariable(name, last, near, func(e *Entry) bool { return e.named(name, last) })
	})
}

// FindVisible is FindVariable for C++ code in a function, whose name has its namespaces and
// classes. It prefers the variable of the innermost of those, then one outside of all
// namespaces, then any.
func (d *Data) FindVisible(name, function string, near *Unit) (Entry, bool) {
	last := lastWord(name)
	for around := function; around != ""; {
		if around = strings.TrimSuffix(around[:len(around)-len(lastWord(around))], "::"); around == function {
			break
		}
		full := squeeze(name)
		if around != "" {
			full = squeeze(around + "::" + name)
		}
		exact := func(e *Entry) bool { return e.Name() == last && squeeze(e.QualifiedName()) == full }
		if e, ok := d.findVariable(full, last, near, exact); ok {
			return e, true
		}
	}
	return d.FindVariable(name, near)
}

// FindDefinition finds the variable that an entry declares. It searches the unit of the entry
// first, then all units. An external declaration is defined only by an external variable; any
// other is defined only by an entry that refers to it. Answers are cached, even if nothing was
// found.
func (d *Data) FindDefinition(e *Entry) (Entry, bool) {
	return d.defined.first(e.Ref(), func() (Entry, bool) { return d.findDefinition(e) })
}

func (d *Data) findDefinition(e *Entry) (Entry, bool) {
	name := e.QualifiedName()
	last := lastWord(name)
	external, of, u := e.Flag(dwarf.AttrExternal), e.Ref(), e.Unit()
	match := func(e *Entry) bool {
		switch {
		case e.Flag(dwarf.AttrDeclaration) || !e.named(name, last):
			return false
		case external:
			return e.isExternal()
		}
		return chase(*e, func(e *Entry) (bool, bool) { return true, e.Ref() == of })
	}
	return d.searchUnits(name, last, u, variableIn(match), (*Entry).isExternal)
}

func (d *Data) findVariable(name, last string, near *Unit, match func(e *Entry) bool) (Entry, bool) {
	if near == nil {
		return d.searchUnits(name, last, nil, variableIn(match), (*Entry).isExternal)
	}
	if e, ok := variableIn(match)(near); ok {
		return e, true
	}
	declared, ok := near.findTop(func(e *Entry) bool {
		return e.tag == dwarf.TagVariable && e.Flag(dwarf.AttrDeclaration) && e.Flag(dwarf.AttrExternal) && match(e)
	})
	if !ok {
		return d.searchUnits(name, last, near, variableIn(match), (*Entry).isExternal)
	}
	if e, ok := d.FindDefinition(&declared); ok {
		return e, true
	}
	return declared, true
}

// variableIn searches a unit for a variable that has a location or a constant value.
func variableIn(match func(e *Entry) bool) func(u *Unit) (Entry, bool) {
	return func(u *Unit) (Entry, bool) {
		return u.findTop(func(e *Entry) bool {
			if e.tag != dwarf.TagVariable {
				return false
			}
			_, located := e.Val(dwarf.AttrLocation)
			_, constant := e.Val(dwarf.AttrConstValue)
			return (located || constant) && match(e)
		})
	}
}

// isExternal reports a variable that other files may use.
func (e *Entry) isExternal() bool {
	_, at, ok := e.Chased(dwarf.AttrExternal)
	return ok && at.Flag(dwarf.AttrExternal)
}

// FindType finds a complete type by its name, alone or with namespaces. It searches the unit
// near first. Answers are cached, even if nothing was found.
func (d *Data) FindType(name string, near *Unit) (Entry, bool) {
	return d.types.first(nameQuestion{name, near}, func() (Entry, bool) { return d.findType(name, near) })
}

// nameQuestion is a question to FindVariable or FindType.
type nameQuestion struct {
	name string
	near *Unit
}

func (d *Data) findType(name string, near *Unit) (Entry, bool) {
	last := lastWord(name)
	find := func(u *Unit) (Entry, bool) {
		return u.findTop(func(e *Entry) bool {
			switch e.tag {
			case dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType, dwarf.TagEnumerationType,
				dwarf.TagTypedef, dwarf.TagBaseType:
				return !e.Flag(dwarf.AttrDeclaration) && e.named(name, last)
			}
			return false
		})
	}
	return d.searchUnits(name, last, near, find, nil)
}

func lastWord(name string) string {
	depth := 0
	for i := len(name) - 1; i > 0; i-- {
		switch name[i] {
		case '>', ')':
			depth++
		case '<', '(':
			depth--
		case ':':
			if depth == 0 && name[i-1] == ':' {
				return name[i+1:]
			}
		}
	}
	return name
}

// named reports whether a written name means the entry. The entry's own name may be in a
// declaration elsewhere.
func (e *Entry) named(name, last string) bool {
	have := e.Name()
	return have == name || have == last && (name == last || squeeze(e.QualifiedName()) == squeeze(name))
}

// searchUnits finds an entry in the unit near, or else in the other units. Of those it takes the
// first entry for which best holds, or else the first entry. best may be nil.
func (d *Data) searchUnits(name, last string, near *Unit, find func(*Unit) (Entry, bool), best func(*Entry) bool) (found Entry, ok bool) {
	if name == "" {
		return Entry{}, false // types without a name can't be found by one
	}
	if near != nil {
		if e, ok := find(near); ok {
			return e, true
		}
	}
	var lazy once[nameFilter]
	for u := range d.unitsWith(ofOthers, last, name) {
		full := u.full()
		f := lazy.get(func() nameFilter { return d.newNameFilter(last) })
		filter := &f
		if full.data != d {
			sub := full.data.newNameFilter(last)
			filter = &sub
		}
		if near != nil && full.off == near.off && full.data == near.data || !filter.in(full) {
			continue
		}
		if e, is := find(full); is && (best == nil || best(&e)) {
			return e, true
		} else if is && !ok {
			found, ok = e, true
		}
	}
	if ok {
		return found, true
	}
	types := d.units[d.info:] // units of .debug_types, which are in no index
	if len(types) > 0 {
		f := d.newNameFilter(last)
		for _, u := range types {
			if f.in(u) {
				if e, ok := find(u); ok {
					return e, true
				}
			}
		}
	}
	return Entry{}, false
}

// findTop goes through the entries of a unit that are not inside of functions.
func (u *Unit) findTop(match func(*Entry) bool) (found Entry, ok bool) {
	u.walk(func(e *Entry, _ int) bool {
		if ok {
			return false
		}
		switch e.tag {
		case dwarf.TagCompileUnit, dwarf.TagPartialUnit, dwarf.TagNamespace, dwarf.TagModule, dwarf.TagTypeUnit:
			return true
		case dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType:
			if match(e) {
				found, _, ok = u.entryAt(e.off)
			}
			return true
		}
		if match(e) {
			found, _, ok = u.entryAt(e.off)
		}
		return false
	})
	return found, ok
}
