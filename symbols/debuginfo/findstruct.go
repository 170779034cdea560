package debuginfo

import (
	"debug/dwarf"
	"errors"
)

// ErrDefinedTwice says that units define different structures by one name, so that it isn't
// known which of them another unit's declaration means.
var ErrDefinedTwice = errors.New("different units define different structures of that name")

// ErrUndefined says that no unit defines a structure.
var ErrUndefined = errors.New("no unit defines it")

// FindStructure finds the structure or union that a unit only declares. Typedefs of its name
// (typedef struct s s) are passed over. Answers are cached, even if nothing was found.
func (d *Data) FindStructure(declared *Entry) (Entry, error) {
	name := declared.QualifiedName()
	key := structQuestion{name, declared.tag == dwarf.TagUnionType, declared.Unit().Language().IsC()}
	list := d.structures.get(key, func() []Entry { return d.findStructures(key) })
	switch len(list) {
	case 0:
		return Entry{}, ErrUndefined
	case 1:
		return list[0], nil
	}
	return Entry{}, ErrDefinedTwice
}

// structQuestion is a question to FindStructure. In C every unit may have a structure of its
// own by a name; in other languages one name is one type.
type structQuestion struct {
	name       string
	union, inC bool
}

// findStructures returns nothing, one definition, or two that differ.
func (d *Data) findStructures(q structQuestion) (found []Entry) {
	last := lastWord(q.name)
	find := func(u *Unit) (Entry, bool) {
		return u.findTop(func(e *Entry) bool {
			switch e.tag {
			case dwarf.TagUnionType:
				return q.union && !e.Flag(dwarf.AttrDeclaration) && e.named(q.name, last)
			case dwarf.TagStructType, dwarf.TagClassType:
				return !q.union && !e.Flag(dwarf.AttrDeclaration) && e.named(q.name, last)
			}
			return false
		})
	}
	enough := func(e *Entry) bool {
		if len(found) == 0 || len(found) == 1 && !alike(&found[0], e) {
			found = append(found, *e)
		}
		return !q.inC || len(found) == 2
	}
	if e, ok := d.searchUnits(q.name, last, nil, find, enough); ok && len(found) == 0 {
		enough(&e) // it is in a unit of types
	}
	if types := d.units[d.info:]; q.inC && len(found) == 1 && len(types) > 0 {
		f := d.newNameFilter(last)
		for _, u := range types {
			if !f.in(u) {
				continue
			}
			if e, ok := find(u); ok && enough(&e) {
				break
			}
		}
	}
	return found
}

// alike reports whether two structures have the same size and members of the same names.
func alike(a, b *Entry) bool {
	n, _ := a.Int(dwarf.AttrByteSize)
	m, _ := b.Int(dwarf.AttrByteSize)
	if n != m {
		return false
	}
	var names []string
	for c := range a.Children() {
		names = append(names, c.Name())
	}
	for c := range b.Children() {
		if len(names) == 0 || names[0] != c.Name() {
			return false
		}
		names = names[1:]
	}
	return len(names) == 0
}
