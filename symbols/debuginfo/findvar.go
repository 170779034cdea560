package debuginfo

import (
	"debug/dwarf"
	"strings"
)

// FindVariable finds a variable outside of functions by its name, alone or
// with namespaces: in the unit near first, then in all. The entry is one that
// has a location or a constant value. What was found, or not, is kept.
func (d *Data) FindVariable(name string, near *Unit) (Entry, bool) {
	return d.variables.first(nameQuestion{name, near}, func() (Entry, bool) { return d.findVariable(name, near) })
}

func (d *Data) findVariable(name string, near *Unit) (Entry, bool) {
	last := lastWord(name)
	return d.searchUnits(name, last, near, variableIn(func(e *Entry) bool { return e.named(name, last) }))
}

// FindVisible is FindVariable for code of C++, by the name of its function with
// namespaces and classes: the variable of the innermost of those that has one of the
// name, then one that is in none, then any.
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
		exact := variableIn(func(e *Entry) bool { return e.Name() == last && squeeze(e.QualifiedName()) == full })
		if e, ok := d.searchUnits(full, last, near, exact); ok {
			return e, true
		}
	}
	return d.FindVariable(name, near)
}

// variableIn looks in a unit for a variable that has a location or a constant value.
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

// FindType finds a complete type by its name, alone or with namespaces, in the
// unit near first. What was found, or not, is kept.
func (d *Data) FindType(name string, near *Unit) (Entry, bool) {
	return d.types.first(nameQuestion{name, near}, func() (Entry, bool) { return d.findType(name, near) })
}

// nameQuestion is what FindVariable and FindType are asked.
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
	return d.searchUnits(name, last, near, find)
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

// named reports whether a name as written means the entry, whose own name may
// be that of a declaration elsewhere.
func (e *Entry) named(name, last string) bool {
	have := e.Name()
	return have == name || have == last && (name == last || squeeze(e.QualifiedName()) == squeeze(name))
}

func (d *Data) searchUnits(name, last string, near *Unit, find func(*Unit) (Entry, bool)) (Entry, bool) {
	if name == "" {
		return Entry{}, false // types without a name have none in common
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
		if e, ok := find(full); ok {
			return e, true
		}
	}
	types := d.units[d.info:] // of .debug_types, which no index has
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
