package debuginfo

import (
	"debug/dwarf"
	"encoding/binary"

	"kprobe/symbols/dwread"
)

// Entry is a debugging information entry. The zero Entry stands for none. Values alias the
// sections.
type Entry struct {
	unit     *Unit
	off      uint64 // in the section
	next     uint64 // offset of what follows its attributes
	tag      dwarf.Tag
	children bool
	vals     []Val
}

// Val is one attribute's value: a number, or bytes of a block or string.
type Val struct {
	Attr dwarf.Attr
	form form
	U    uint64
	B    []byte
}

// Ref refers to an entry. It is comparable, and the zero Ref refers to none.
type Ref struct {
	unit *Unit
	off  uint64
}

// IsZero reports whether the Ref refers to no entry.
func (r Ref) IsZero() bool { return r.unit == nil }

// Offset returns the entry's place in its section. Entries of one unit are in the order of
// their source.
func (r Ref) Offset() uint64 { return r.off }

// Entry reads the entry that the Ref refers to. If that is only the signature of a type in a
// type unit, Entry reads the type itself.
func (r Ref) Entry() (Entry, bool) {
	if r.unit == nil {
		return Entry{}, false
	}
	e, _, ok := r.unit.entryAt(r.off)
	if v, has := e.Val(dwarf.AttrSignature); ok && has && v.form == formRefSig8 {
		if o := r.unit.data.typeUnit(v.U); o != nil {
			if whole, _, ok := o.entryAt(o.off + o.typeOff); ok {
				return whole, true
			}
		}
	}
	return e, ok
}

// Ref returns a reference to the entry.
func (e *Entry) Ref() Ref { return Ref{e.unit, e.off} }

// Tag returns the entry's kind.
func (e *Entry) Tag() dwarf.Tag { return e.tag }

// Unit returns the unit that holds the entry.
func (e *Entry) Unit() *Unit { return e.unit }

// Val finds an attribute.
func (e *Entry) Val(a dwarf.Attr) (Val, bool) {
	for i := range e.vals {
		if e.vals[i].Attr == a {
			return e.vals[i], true
		}
	}
	return Val{}, false
}

// entryAt reads the entry at an offset. next is the offset of what follows its attributes. A
// null entry has no tag and is ok.
func (u *Unit) entryAt(off uint64) (e Entry, next uint64, ok bool) {
	e, next, ok = u.entryInto(off, nil)
	return e, next, ok
}

// entryInto is entryAt with room for the values.
func (u *Unit) entryInto(off uint64, room []Val) (e Entry, next uint64, ok bool) {
	if off < u.first || off >= u.end {
		return Entry{}, u.end, false
	}
	r := dwread.At(u.bytes(), off)
	e = Entry{unit: u, off: off, vals: room[:0]}
	code := r.Uleb()
	if code == 0 {
		return e, r.At, !r.Bad
	}
	table := u.abbrevs.get(func() *abbrevTable { return u.data.abbrevsAt(u.abbrev) })
	a := table.find(code)
	if a == nil || r.Bad {
		return Entry{}, u.end, false
	}
	e.tag, e.children = a.tag, a.children
	fm := u.format()
	if cap(e.vals) < len(a.attrs) {
		e.vals = make([]Val, 0, len(a.attrs))
	}
	for i := range a.attrs {
		s := &a.attrs[i]
		f := s.form
		if f == formIndirect {
			f = form(r.Uleb())
			if f == formIndirect || f == formImplicitConst {
				return Entry{}, u.end, false
			}
		}
		v, b := value(&r, f, fm, s.implicit)
		e.vals = append(e.vals, Val{Attr: s.attr, form: f, U: v, B: b})
	}
	e.next = r.At
	return e, r.At, !r.Bad
}

// Str returns a string attribute, or "".
func (e *Entry) Str(a dwarf.Attr) string {
	if e.unit == nil {
		return ""
	}
	return e.unit.stringIn(e.unit.root(), e, a)
}

// Name returns the entry's DW_AT_name, or that of the entry it completes.
func (e *Entry) Name() string {
	return chase(*e, func(e *Entry) (string, bool) {
		s := e.Str(dwarf.AttrName)
		return s, s != ""
	})
}

// chase looks for something in an entry, then in its abstract origin and
// specification.
func chase[T any](e Entry, look func(*Entry) (T, bool)) T {
	for range 8 {
		if v, ok := look(&e); ok {
			return v
		}
		r, ok := e.RefTo(dwarf.AttrAbstractOrigin)
		if !ok {
			if r, ok = e.RefTo(dwarf.AttrSpecification); !ok {
				break
			}
		}
		if e, ok = r.Entry(); !ok {
			break
		}
	}
	var zero T
	return zero
}

// Chased finds an attribute in the entry, its abstract origin or its specification. It also
// returns the entry that has it, because forms may depend on its unit.
func (e *Entry) Chased(a dwarf.Attr) (Val, Entry, bool) {
	type found struct {
		v  Val
		e  Entry
		ok bool
	}
	f := chase(*e, func(e *Entry) (found, bool) {
		v, ok := e.Val(a)
		return found{v, *e, ok}, ok
	})
	return f.v, f.e, f.ok
}

// stringIn reads a string attribute. t is the part of the unit's first entry that is known so
// far.
func (u *Unit) stringIn(t *unitTop, e *Entry, a dwarf.Attr) string {
	v, ok := e.Val(a)
	if !ok {
		return ""
	}
	return string(u.stringOf(t, v))
}

func (u *Unit) stringOf(t *unitTop, v Val) []byte {
	sec := &u.data.sec
	at := func(b []byte, off uint64) []byte {
		r := dwread.At(b, off)
		return r.CString()
	}
	switch v.form {
	case formString:
		return v.B
	case formStrp:
		return at(sec.Str, v.U)
	case formLineStrp:
		return at(sec.LineStr, v.U)
	case formStrpSup, formGNUStrpAlt:
		if u.data.alt == nil {
			return nil
		}
		return at(u.data.alt.sec.Str, v.U)
	case formStrx, formStrx1, formStrx2, formStrx3, formStrx4, formGNUStrIndex:
		if off, ok := u.stringPlace(t, v.U); ok {
			return at(sec.Str, off)
		}
	}
	return nil
}

// stringPlace returns the place in .debug_str of the unit's i-th string offset.
func (u *Unit) stringPlace(t *unitTop, i uint64) (off uint64, ok bool) {
	size := uint64(4)
	if u.dwarf64 {
		size = 8
	}
	if i > uint64(len(u.data.sec.StrOffsets)) {
		return 0, false
	}
	r := dwread.At(u.data.sec.StrOffsets, t.strBase+i*size)
	off = r.Offset(u.dwarf64)
	return off, !r.Bad
}

// addressIn reads an address, direct or through .debug_addr.
func (u *Unit) addressIn(t *unitTop, v Val) (uint64, bool) {
	switch v.form {
	case formAddr:
		return v.U, true
	case formAddrx, formAddrx1, formAddrx2, formAddrx3, formAddrx4, formGNUAddrIndex:
		return u.indexed(t, v.U)
	}
	return 0, false
}

// indexed returns an entry of .debug_addr. Split files have that section in their main file.
func (u *Unit) indexed(t *unitTop, i uint64) (uint64, bool) {
	sec := u.data.sec.Addr
	if u.skel != nil {
		sec = u.skel.data.sec.Addr
	}
	off := t.adrBase + i*uint64(u.addrSize)
	if i > uint64(len(sec)) || off > uint64(len(sec)) || uint64(u.addrSize) > uint64(len(sec))-off {
		return 0, false
	}
	if u.addrSize == 4 {
		return uint64(binary.LittleEndian.Uint32(sec[off:])), true
	}
	return binary.LittleEndian.Uint64(sec[off:]), true
}

// Address returns an address attribute.
func (e *Entry) Address(a dwarf.Attr) (uint64, bool) {
	v, ok := e.Val(a)
	if !ok {
		return 0, false
	}
	return e.unit.addressIn(e.unit.root(), v)
}

// Int returns a constant attribute, sign-extended if its form has a sign.
func (e *Entry) Int(a dwarf.Attr) (int64, bool) {
	v, ok := e.Val(a)
	if !ok {
		return 0, false
	}
	return v.Int()
}

// Int returns the value as a constant.
func (v Val) Int() (int64, bool) {
	switch v.form {
	case formData1, formData2, formData4, formData8, formUdata, formSdata, formImplicitConst, formFlag, formFlagPresent, formSecOffset:
		return int64(v.U), true
	}
	return 0, false
}

// Signed returns a constant attribute whose fixed-size forms are sign-extended, as for a
// signed type.
func (v Val) Signed() (int64, bool) {
	switch v.form {
	case formData1:
		return int64(int8(v.U)), true
	case formData2:
		return int64(int16(v.U)), true
	case formData4:
		return int64(int32(v.U)), true
	}
	return v.Int()
}

// IsBlock reports whether the value is a block of bytes or an expression.
func (v Val) IsBlock() bool {
	switch v.form {
	case formBlock, formBlock1, formBlock2, formBlock4, formExprloc:
		return true
	}
	return false
}

// Flag reports whether an attribute is set.
func (e *Entry) Flag(a dwarf.Attr) bool {
	v, ok := e.Val(a)
	return ok && v.U != 0
}

// RefTo returns a reference to another entry.
func (e *Entry) RefTo(a dwarf.Attr) (Ref, bool) {
	v, ok := e.Val(a)
	if !ok {
		return Ref{}, false
	}
	return e.unit.ref(v)
}

// ref follows a reference of one of the unit's entries.
func (u *Unit) ref(v Val) (Ref, bool) {
	switch v.form {
	case formRef1, formRef2, formRef4, formRef8, formRefUdata:
		off := u.off + v.U
		return Ref{u, off}, v.U < u.end-u.off && off >= u.first
	case formRefAddr:
		if o := u.data.unitAt(v.U, false); o != nil {
			if o.off == u.off && !u.types {
				o = u // a split unit has its skeleton
			}
			return Ref{o, v.U}, true
		}
	case formRefSig8:
		if o := u.data.typeUnit(v.U); o != nil {
			return Ref{o, o.off + o.typeOff}, true
		}
	case formRefSup4, formRefSup8, formGNURefAlt:
		if u.data.alt != nil {
			if o := u.data.alt.unitAt(v.U, false); o != nil {
				return Ref{o, v.U}, true
			}
		}
	}
	return Ref{}, false
}
