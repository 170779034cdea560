package vars

import (
	"debug/dwarf"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"kprobe/fetch"
	"kprobe/symbols/debuginfo"
	"kprobe/symbols/dwread"
)

// member is a part of a structure.
type member struct {
	name   string
	off    int64 // in bytes
	typ    ctype
	width  uint8 // of bitfields, in bits; off and bit then describe the container
	bit    uint8
	base   bool // a base class or a member without a name: its members count as the structure's
	static debuginfo.Entry

	inherited bool // of base: a base class

	variant bool // in a variant part
	tag     bool // in a variant part: says which variant is there
	isCase  bool // a variant, for the values in cases; without cases, for all other values
	lost    bool // a bitfield at an unknown bit of the byte at off, which can't be read
	cases   []uint64
}

// shown returns the member's name as it is printed. A base class is <CLASS>, which no member
// can be called.
func (m *member) shown() string {
	if m.name == "" && m.typ.entry.Unit() != nil && m.inherited {
		return "<" + m.typ.name + ">"
	}
	return m.name
}

// Bounds on the members of one structure, and on the structures looked into
// for one answer.
const (
	maxMembers = 4096
	maxWork    = 20000
)

// maxInside limits structures within structures. The standard libraries' classes have a dozen
// levels of base classes.
const maxInside = 64

// tooDeep reports whether structures are nested too deeply. The answer then says that it was
// given up.
func (f *frame) tooDeep(depth int) bool {
	if depth > maxInside {
		f.work = maxWork + 1
		return true
	}
	return false
}

// errTooManyTypes says that an answer was given up, because it doesn't cover all structures.
var errTooManyTypes = errors.New("its type consists of more structures than kprobe looks into")

// members lists a structure's data members. Static members have no offset, and only those are
// listed that debug information defines. The list is cached: callers must not change it.
func (f *frame) members(t ctype) []member {
	if f.work++; t.kind != kindStruct || f.work > maxWork {
		return nil
	}
	key := t.entry.Ref()
	list, ok := f.lists[key]
	if !ok {
		if f.lists == nil {
			f.lists = map[debuginfo.Ref][]member{}
		}
		list = f.readMembers(t)
		f.lists[key] = list
	}
	return list
}

// readMembers reads the list that members caches.
func (f *frame) readMembers(t ctype) []member {
	var out []member
	bits := int64(0) // the bit at which the last bitfield ends
	for c := range t.entry.Children() {
		if len(out) == maxMembers {
			break
		}
		switch c.Tag() {
		case dwarf.TagMember, dwarf.TagInheritance:
		case dwarf.TagVariable:
			out = append(out, member{name: c.Name(), static: c})
			continue
		case tagVariantPart:
			out = append(out, f.variants(c)...)
			continue
		default:
			continue
		}
		if c.Flag(dwarf.AttrDeclaration) || c.Flag(dwarf.AttrExternal) {
			out = append(out, member{name: c.Name(), static: c})
			continue
		}
		if m, ok := f.member(c); ok {
			if m.width != 0 {
				bits = m.off*8 + int64(m.bit) + int64(m.width)
			} else if !m.base && bits > m.off*8 && t.entry.Tag() != dwarf.TagUnionType {
				// If a bitfield is as wide as its type, LLVM omits the bits from its place.
				m.lose()
			}
			m.within(t.size)
			out = append(out, m)
		}
	}
	f.loseShifted(t, out)
	return out
}

// lose marks a member whose value can't be read.
func (m *member) lose() { m.lost, m.typ = true, ctype{name: m.typ.name, size: m.typ.size} }

// within makes a bitfield's container lie entirely in the structure, which has size bytes. In
// a packed structure, the last container may be smaller than the bitfield's type.
func (m *member) within(size int64) {
	if m.width == 0 || m.off+m.typ.size <= size {
		return
	}
	at := m.off*8 + int64(m.bit)
	n := int64(1)
	for at%8+int64(m.width) > n*8 {
		n *= 2
	}
	if off := min(at/8, size-n); n <= 8 && off >= 0 && at+int64(m.width) <= size*8 {
		m.off, m.bit, m.typ.size = off, uint8(at-off*8), n
	}
}

// reach returns how many bytes the member needs, from its place on.
func (m *member) reach() int64 {
	if m.width != 0 {
		return (int64(m.bit) + int64(m.width) + 7) / 8
	}
	return m.typ.size
}

// tagVariantPart holds the variants of Rust's enums.
const tagVariantPart dwarf.Tag = 0x33

// variants returns the discriminant of a variant part, and the variants as members with their
// own names.
func (f *frame) variants(e debuginfo.Entry) []member {
	var out []member
	if r, ok := e.RefTo(dwarf.AttrDiscr); ok {
		if d, ok := r.Entry(); ok {
			if m, ok := f.member(d); ok {
				m.name, m.tag, m.variant = "discriminant", true, true
				out = append(out, m)
			}
		}
	}
	for v := range e.Children() {
		if v.Tag() != dwarf.TagVariant {
			continue
		}
		for c := range v.Children() {
			if c.Tag() == dwarf.TagMember && len(out) < maxMembers {
				if m, ok := f.member(c); ok {
					m.isCase, m.cases = casesOf(v)
					m.variant = true
					out = append(out, m)
				}
			}
		}
	}
	if len(out) > 0 && out[0].tag && out[0].typ.size == 16 && !slices.ContainsFunc(out[1:], func(m member) bool { return !m.isCase }) {
		// An enum with 128-bit numbers: the lower half decides.
		out[0].typ = ctype{kind: kindUint, name: out[0].typ.name, size: 8, entry: out[0].typ.entry}
	}
	return out
}

// casesOf reads the values of the discriminant that mean a variant: one value, a list, or none
// for the variant that stands for all other values. ok is false if they can't be read.
func casesOf(v debuginfo.Entry) (ok bool, cases []uint64) {
	if n, has := v.Val(dwarf.AttrDiscrValue); has {
		u, isInt := n.Int()
		if isInt {
			return true, []uint64{uint64(u)}
		}
		if len(n.B) == 16 && binary.LittleEndian.Uint64(n.B[8:]) == 0 {
			return true, []uint64{binary.LittleEndian.Uint64(n.B)}
		}
		return false, nil // the value has more than 8 bytes
	}
	_, list := v.Val(dwarf.AttrDiscrList)
	return !list, nil
}

func (f *frame) member(c debuginfo.Entry) (member, bool) {
	r, ok := c.RefTo(dwarf.AttrType)
	if !ok {
		return member{}, false
	}
	m := member{name: c.Str(dwarf.AttrName), typ: f.resolve(r)}
	m.inherited = c.Tag() == dwarf.TagInheritance
	m.base = m.inherited || m.name == ""
	if n, ok := c.Int(attrAlignment); ok && n > 0 && m.typ.kind != kindStruct && m.typ.kind != kindArray && !f.isGNU() {
		m.typ.align = n // the alignment of a typedef
	}
	if v, ok := c.Val(dwarf.AttrDataMemberLoc); ok {
		n, isInt := v.Int()
		if !isInt {
			if n, isInt = constantOffset(v.B); !isInt {
				return member{}, false // a virtual base class
			}
		}
		m.off = n
	}
	width, isBits := c.Int(dwarf.AttrBitSize)
	if !isBits || width <= 0 || width > 64 || m.typ.size <= 0 {
		return m, true
	}
	size := m.typ.size
	if n, ok := c.Int(dwarf.AttrByteSize); ok && n > 0 {
		size = n
	}
	at := m.off * 8
	if n, ok := c.Int(dwarf.AttrDataBitOffset); ok {
		at = n
	} else if n, ok := c.Int(dwarf.AttrBitOffset); ok { // counted from the highest bit
		at += size*8 - n - width
	}
	if size > 8 || size&(size-1) != 0 || at < 0 {
		return member{}, false
	}
	m.off = at / (size * 8) * size
	if at%(size*8)+width > size*8 { // it crosses containers, as in packed structures
		m.off = at / 8
		size = 8
		if at%8+width > 64 { // it needs nine bytes
			m.lose()
			return m, true
		}
	}
	m.width, m.bit = uint8(width), uint8(at-m.off*8)
	m.typ.size = size
	return m, true
}

// constantOffset reads the expression that old compilers write for an offset:
// DW_OP_plus_uconst N.
func constantOffset(b []byte) (int64, bool) {
	r := dwread.At(b, 0)
	if r.U8() != opPlusUconst {
		return 0, false
	}
	n := r.Uleb()
	return int64(n), !r.Bad && r.Left() == 0 && n < 1<<40
}

// lookup finds a member by its name, also in base classes and in members without a name. off
// counts from the start of the structure.
func (f *frame) lookup(t ctype, name string, depth int) (m member, off int64, ok bool) {
	list := f.members(t)
	for _, m := range list {
		if m.name == name && name != "" {
			return m, m.off, true
		}
	}
	if f.tooDeep(depth) {
		return member{}, 0, false
	}
	for _, b := range list {
		if !b.base || b.typ.kind != kindStruct {
			continue
		}
		if m, off, ok := f.lookup(b.typ, name, depth+1); ok {
			return m, off + b.off, true
		}
	}
	return member{}, 0, false
}

// memberNames lists a structure's members; errors print it.
func (f *frame) memberNames(t ctype, depth int) []string {
	var out []string
	for _, m := range f.members(t) {
		switch {
		case m.base && m.typ.kind == kindStruct && depth < maxInside:
			out = append(out, f.memberNames(m.typ, depth+1)...)
		case m.name != "":
			out = append(out, m.name)
		}
	}
	return out
}

// fieldType returns how a member, or a whole value, is recorded. Size 0 means that it can't
// be.
func (f *frame) fieldType(t ctype, width, bit uint8, depth int) fetch.Type {
	if f.isEmpty(t) {
		return emptyType(t)
	}
	out := fetch.Type{Size: uint8(min(t.size, 255)), BitWidth: width, BitOff: bit}
	switch t.kind {
	case kindInt:
		out.Base = fetch.Signed
	case kindUint:
		out.Base = fetch.Unsigned
	case kindChar:
		out.Base = fetch.Char
		switch {
		case width != 0 && t.signed:
			out.Base = fetch.Signed
		case width != 0:
			out.Base = fetch.Unsigned
		}
	case kindBool:
		out.Base, out.Layout = fetch.Unsigned, &fetch.Layout{Name: t.name, Bool: true}
	case kindFloat:
		out.Base = fetch.Float
		if t.size < 4 {
			return fetch.Type{}
		}
	case kindPointer, kindReference:
		out.Base = fetch.Hex
		if depth > 0 && t.kind == kindPointer && f.isText(t) {
			out.Base = fetch.String // fetch records it with the structure
		}
		if l := f.languageOf(t); depth > 0 && (l.IsGo() || l.IsRust()) {
			if c := f.container(t); c != nil { // a map or a channel; a Box, or a reference of a text
				return fetch.Type{Base: fetch.Container, Size: 8, Layout: &fetch.Layout{Name: t.name, Content: c}}
			}
		}
		if f.resolve(t.elem).kind == kindFunc && !t.elem.IsZero() {
			out.Base = fetch.SymbolName
		}
	case kindEnum:
		out.Base = fetch.Unsigned
		if t.signed {
			out.Base = fetch.Signed
		}
		out.Layout = f.enumLayout(t)
	case kindWideInt:
		how := fetch.WideUnsigned
		if t.signed {
			how = fetch.WideSigned
		}
		return fetch.Type{Base: fetch.Hex, Size: 8, Count: 2, Layout: &fetch.Layout{Name: t.name, Wide: how}}
	case kindWideFloat:
		how := fetch.WideX87
		if strings.Contains(t.name, "128") {
			how = fetch.WideFloat
		}
		return fetch.Type{Base: fetch.Hex, Size: 8, Count: 2, Layout: &fetch.Layout{Name: t.name, Wide: how}}
	case kindComplex:
		half := fetch.Type{Base: fetch.Float, Size: uint8(t.size / 2)}
		if t.size == 32 {
			half = fetch.Type{Base: fetch.Hex, Size: 8, Count: 2, Layout: &fetch.Layout{Wide: fetch.WideX87}}
		}
		both, _ := words(t.size)
		both.Layout = &fetch.Layout{Name: t.name, Members: []fetch.Member{{Name: "re", Type: half}, {Name: "im", Off: int(t.size / 2), Type: half}}}
		return both
	case kindMethod:
		both, _ := words(16)
		both.Layout = &fetch.Layout{Name: t.name, Members: []fetch.Member{
			{Name: "ptr", Type: fetch.Type{Base: fetch.SymbolName, Size: 8}}, {Name: "adj", Off: 8, Type: fetch.Type{Base: fetch.Signed, Size: 8}}}}
		return both
	case kindStruct:
		if depth > 0 {
			if c := f.container(t); c != nil {
				return fetch.Type{Base: fetch.Container, Size: 8, Layout: &fetch.Layout{Name: t.name, Content: c}}
			}
			if ptr, length, ok := f.textParts(t); ok && ptr == 0 {
				return fetch.Type{Base: fetch.String, Size: 8, Layout: &fetch.Layout{Name: t.name, Len: int(length)}}
			}
		}
		return f.structType(t, depth)
	case kindArray:
		return f.arrayType(t, depth)
	default:
		return fetch.Type{}
	}
	if out.Size != 1 && out.Size != 2 && out.Size != 4 && out.Size != 8 {
		return fetch.Type{}
	}
	return out
}
