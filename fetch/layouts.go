package fetch

import (
	"slices"
	"strings"
)

// Layout describes a type beyond its numbers: the names of an enumeration's values, or the
// members of a structure. It comes from debug information, is never changed afterwards, and may
// be shared. A Type without one prints by its Base.
type Layout struct {
	// Name is the type as its source has it: "struct conn", "enum color".
	Name string
	// Bool prints 0 as false and anything else as true.
	Bool bool
	// Text prints an array of Char as text, up to its first NUL.
	Text bool
	// Wide says what a number of 16 bytes is. The Type has two words of it.
	Wide Wide
	// Enum names values of scalars. A value without an enumerator prints as the enumerators
	// whose bits it consists of, if Flags is set, and otherwise as a number.
	Enum  []Enumerator
	Flags bool
	// Members are the parts of a structure, or the elements of an array that are more than
	// numbers. The Type is then an array of Count words of Size bytes that hold all of it,
	// so that recording needs no layout.
	Members []Member
	// Switch, if it is not 0, is 1 + the index of the member that says which of the members
	// with Cases is present. Of these only that one is printed, and the number itself only
	// if none is.
	Switch int
	// Array says that Members are elements and have no names.
	Array bool
	// Len, of a member that is a String, is where the number of its bytes is, from the
	// string's address on: for strings of Go, Rust and C++. 0 means that it ends with NUL.
	Len int
	// Gone is the reason why there is no value, such as OptimizedOut; "" if there is one.
	Gone string
	// Content says what is in a container; the Type is then a Container.
	Content *Content
	// Unit is printed behind a number: "ms".
	Unit string
	// More says that the value has more than what is recorded.
	More bool
}

// Enumerator is a named value of an enumeration.
type Enumerator struct {
	Name  string
	Value uint64 // extended to 64 bits as the type prints
}

// Member is a part of a structure.
type Member struct {
	Name string // "" for elements, and for what its source gives no name; <CLASS> of a base class
	Off  int    // in bytes from the start of the structure
	Type Type
	// Case says that the member is one variant of several (Layout.Switch): that of
	// the values Cases, or with none of them of all others.
	Case  bool
	Cases []uint64 // as many bits as the deciding member has
}

// empty reports a variant without anything in it.
func (m *Member) empty() bool {
	l := m.Type.Layout
	return m.Case && l != nil && len(l.Members) == 0 && !l.More
}

// shown reports whether a member is printed of a value.
func (l *Layout) shown(i int, v *Value) bool {
	if l.Switch == 0 || l.Switch > len(v.Elems) || !l.Members[i].Case && i != l.Switch-1 {
		return true
	}
	which := v.Elems[l.Switch-1].Int
	if size := l.Members[l.Switch-1].Type.Size; size < 8 {
		which &= 1<<(8*size) - 1
	}
	there := -1
	for k := range l.Members {
		switch m := &l.Members[k]; {
		case !m.Case:
		case slices.Contains(m.Cases, which):
			there = k
		case len(m.Cases) == 0 && there < 0:
			there = k
		}
	}
	if i == l.Switch-1 {
		return there < 0
	}
	return i == there
}

// enumerator returns the name of a value.
func (l *Layout) enumerator(v uint64) (string, bool) {
	for i := range l.Enum {
		if l.Enum[i].Value == v {
			return l.Enum[i].Name, true
		}
	}
	return "", false
}

// appendFlags appends v as A|B|0x80; ok is false, and dst is as it was, when
// no enumerator is part of it.
func (l *Layout) appendFlags(dst []byte, v uint64) (out []byte, ok bool) {
	if !l.Flags || v == 0 {
		return dst, false
	}
	out = dst
	for i := range l.Enum {
		e := &l.Enum[i]
		if e.Value == 0 || v&e.Value != e.Value {
			continue
		}
		if ok {
			out = append(out, '|')
		}
		out = append(out, e.Name...)
		v &^= e.Value
		ok = true
	}
	if !ok {
		return dst, false
	}
	if v != 0 {
		out = appendHex(append(out, '|'), v)
	}
	return out, true
}

// bitfieldBytes is how many bytes of its container a bitfield reaches into.
func (t Type) bitfieldBytes() int { return (int(t.BitOff) + int(t.BitWidth) + 7) / 8 }

// decode takes a value of type t, as memory holds it, apart. ok is false when
// b is too short for it.
func (t Type) decode(b []byte, v *Value) (ok bool) {
	switch l := t.Layout; {
	case l != nil && l.Gone != "":
		return true
	case t.Base == Container && l != nil:
		if !l.Content.Flat() {
			v.Truncated, v.None = true, true // fetch records it with the structure
			return len(b) >= int(l.Content.Size)
		}
		return len(b) >= int(l.Content.Size) && l.Content.decodeFlat(b[:l.Content.Size], v)
	case l != nil && l.Members != nil:
		for i := range l.Members {
			m := &l.Members[i]
			v.Elems = append(v.Elems, Value{})
			if m.Off < 0 || m.Off > len(b) || !m.Type.decode(b[m.Off:], &v.Elems[i]) {
				return false
			}
		}
		return true
	case l != nil && l.Wide != 0:
		if len(b) < 16 {
			return false
		}
		v.Bytes = b[:16]
		return true
	case l != nil && l.Text && t.Count != 0:
		if len(b) < int(t.Count) {
			return false
		}
		v.Bytes = cutNUL(b[:t.Count])
		v.Truncated = l.More && len(v.Bytes) == int(t.Count)
		return true
	case t.Count != 0:
		if len(b) < int(t.Count)*int(t.Size) {
			return false
		}
		for i := range int(t.Count) {
			v.Elems = append(v.Elems, Value{Int: t.element(b, i), Address: t.Base == String})
		}
		return true
	}
	if len(b) < int(t.Size) {
		if t.BitWidth == 0 || len(b) < t.bitfieldBytes() {
			return false
		}
		b = append(make([]byte, 0, t.Size), b...)[:t.Size] // a packed structure ends before the container
	}
	v.Int, v.Address = t.element(b, 0), t.Base == String
	return true
}

func cutNUL(b []byte) []byte {
	for i, c := range b {
		if c == 0 {
			return b[:i:i]
		}
	}
	return b
}

// isNamed reports whether values of the type have names.
func (t Type) isNamed() bool {
	return t.Layout != nil && t.Count == 0 && !t.IsText() && (t.Layout.Bool || len(t.Layout.Enum) > 0)
}

// valueOf is the value of a name: an enumerator's, with or without the names that
// stand before it, true or false.
func (l *Layout) valueOf(name string) (uint64, bool) {
	if l.Bool && (name == "true" || name == "false") {
		v := uint64(0)
		if name == "true" {
			v = 1
		}
		return v, true
	}
	for i := range l.Enum {
		have := l.Enum[i].Name
		if have == name || strings.HasSuffix(name, "::"+have) || strings.HasSuffix(name, "."+have) {
			return l.Enum[i].Value, true
		}
	}
	return 0, false
}
