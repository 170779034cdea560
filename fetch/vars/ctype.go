package vars

import (
	"debug/dwarf"
	"strings"

	"kprobe/symbols/debuginfo"
)

type typeKind uint8

const (
	kindUnknown typeKind = iota
	kindVoid
	kindInt
	kindUint
	kindChar
	kindBool
	kindFloat
	kindPointer
	kindReference
	kindStruct // and classes and unions
	kindArray
	kindEnum
	kindFunc
	kindWideInt   // __int128
	kindWideFloat // long double, __float128
	kindComplex   // two floating-point numbers
	kindMethod    // C++: a pointer to a member function, two words
)

// ctype is a type without typedefs and qualifiers.
type ctype struct {
	kind   typeKind
	name   string          // as written, typedefs and all; "" is none
	size   int64           // in bytes; 0 is unknown
	entry  debuginfo.Entry // of structures, enumerations and arrays
	elem   debuginfo.Ref   // of pointers, references, arrays; zero is void
	count  int64           // of arrays; 0 is unknown
	stars  int             // of pointers that a cast names: how many further pointers lead to elem
	dim    int             // of arrays: which dimension of the entry count belongs to
	signed bool            // of enumerations and characters
	alias  bool            // named by a typedef
	atomic bool            // C's _Atomic
	align  int64           // in bytes; 0 means by its size
}

// String returns the type as its source writes it.
func (t ctype) String() string {
	if t.name == "" {
		return "?"
	}
	return t.name
}

// maxChain limits chains of typedefs.
const maxChain = 64

// typeOf returns the type of a variable.
func (f *frame) typeOf(e *debuginfo.Entry) (ctype, error) {
	_, at, ok := e.Chased(dwarf.AttrType)
	if !ok {
		if d, found := f.definition(e); found {
			_, at, ok = d.Chased(dwarf.AttrType)
		}
	}
	if !ok {
		return ctype{}, unknown("its type is not in the debug information")
	}
	r, ok := at.RefTo(dwarf.AttrType)
	if !ok {
		return ctype{}, unknown("its type is in a file that can't be found")
	}
	return f.resolve(r), nil
}

// resolve reads a type. An unknown type is kindUnknown, with its size.
func (f *frame) resolve(r debuginfo.Ref) ctype {
	f.nested++
	defer func() { f.nested-- }()
	if f.nested > maxChain {
		return ctype{name: "?"} // a type that contains itself
	}
	t := ctype{kind: kindVoid, name: "void"}
	first := ""
	quals := ""
	for range maxChain {
		e, ok := r.Entry()
		if !ok {
			return t
		}
		name := e.Str(dwarf.AttrName)
		switch e.Tag() {
		case dwarf.TagTypedef:
			t.alias = true
			if first == "" {
				first = quals + name
			}
		case dwarf.TagConstType:
			if first == "" {
				quals = "const "
			}
		case dwarf.TagAtomicType:
			t.atomic = true
		case dwarf.TagVolatileType, dwarf.TagRestrictType, dwarf.TagImmutableType, dwarf.TagPackedType, dwarf.TagSharedType:
		default:
			out := f.plain(e)
			out.alias, out.atomic = t.alias, t.atomic
			if first != "" {
				out.name = first
			} else if out.kind != kindArray || !strings.HasPrefix(out.name, quals) { // whose elements are const already
				out.name = quals + out.name
			}
			return out
		}
		next, ok := e.RefTo(dwarf.AttrType)
		if !ok {
			if first != "" {
				t.name = first
			} else {
				t.name = quals + t.name
			}
			return t
		}
		r = next
	}
	return ctype{name: "?"}
}

// attrAlignment is DWARF 5's DW_AT_alignment, for types whose source aligns them.
const attrAlignment dwarf.Attr = 0x88

// Encodings of base types (DWARF 5, table 7.11).
const (
	ateAddress      = 0x01
	ateBoolean      = 0x02
	ateComplex      = 0x03
	ateFloat        = 0x04
	ateSigned       = 0x05
	ateSignedChar   = 0x06
	ateUnsigned     = 0x07
	ateUnsignedChar = 0x08
	ateUTF          = 0x10
)

// plain reads a type that isn't a typedef.
func (f *frame) plain(e debuginfo.Entry) ctype {
	t := ctype{name: e.Name(), entry: e}
	t.size, _ = e.Int(dwarf.AttrByteSize)
	if t.size < 0 {
		t.size = 0
	}
	t.elem, _ = e.RefTo(dwarf.AttrType)
	switch e.Tag() {
	case dwarf.TagBaseType:
		return f.base(t)
	case dwarf.TagPtrToMemberType:
		t.name = f.pointerName(e, t, "::*")
		t.kind, t.size = kindInt, 8 // the member's offset
		if !t.elem.IsZero() && f.resolve(t.elem).kind == kindFunc {
			t.kind, t.size = kindMethod, 16
		}
	case dwarf.TagPointerType:
		t.kind, t.size = kindPointer, max(t.size, 8)
		t.name = f.pointerName(e, t, "*")
	case dwarf.TagReferenceType, dwarf.TagRvalueReferenceType:
		t.kind, t.size = kindReference, 8
		t.name = f.pointerName(e, t, "&")
	case dwarf.TagUnspecifiedType:
		t.kind, t.size = kindPointer, 8 // nullptr_t
		if f.language(e).IsRust() {
			t.kind, t.size = kindUnknown, 0
		}
	case dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType:
		t.kind = kindStruct
		t.align, _ = e.Int(attrAlignment)
		t.name = f.structName(e)
	case dwarf.TagEnumerationType:
		t.kind = kindEnum
		if under := f.resolve(t.elem); !t.elem.IsZero() {
			t.signed = under.kind == kindInt
			t.size = max(t.size, under.size)
		} else {
			t.signed = hasNegative(e)
		}
		t.name = "enum " + t.name
		if l := f.language(e); l.IsRust() || l.IsCXX() {
			t.name = e.Name()
		}
	case dwarf.TagArrayType:
		f.array(&t)
	case dwarf.TagSubroutineType:
		t.kind = kindFunc
		t.name = f.funcName(e, t)
		if f.language(e).IsGo() { // a value is the address of a closure, which begins with the address of the code
			t.kind, t.size, t.elem = kindPointer, 8, debuginfo.Ref{}
		}
	case dwarf.TagSubrangeType:
		under := f.resolve(t.elem)
		under.name = e.Name()
		return under
	default:
		t.kind = kindUnknown
	}
	return t
}

// whole finds the definition of a structure that is only declared here. It searches all units,
// so it is called only when a structure's own members are needed.
func (f *frame) whole(t ctype) ctype {
	if t.kind != kindStruct || !t.entry.Flag(dwarf.AttrDeclaration) || t.entry.Name() == "" {
		return t
	}
	if full, err := f.data.FindStructure(&t.entry); err == nil {
		t.entry = full
		t.size, _ = full.Int(dwarf.AttrByteSize)
	}
	return t
}

func hasNegative(e debuginfo.Entry) bool {
	for c := range e.Children() {
		if v, ok := c.Val(dwarf.AttrConstValue); ok {
			if n, ok := v.Int(); ok && n < 0 {
				return true
			}
		}
	}
	return false
}

func (f *frame) base(t ctype) ctype {
	enc, _ := t.entry.Int(dwarf.AttrEncoding)
	switch enc {
	case ateBoolean:
		t.kind = kindBool
	case ateFloat:
		t.kind = kindFloat
	case ateSigned:
		t.kind = kindInt
	case ateSignedChar:
		t.kind, t.signed = kindChar, true
	case ateUnsignedChar, ateUTF:
		t.kind = kindChar
	case ateUnsigned, ateAddress:
		t.kind = kindUint
	}
	if t.kind == kindUint && t.size == 1 && t.entry.Name() == "char8_t" {
		t.kind = kindChar // GCC calls it a number
	}
	if t.kind == kindChar && t.size == 1 && enc != ateUTF && f.isByte(t) {
		t.kind = kindUint
		if t.signed {
			t.kind = kindInt
		}
	}
	switch t.size {
	case 1, 2, 4, 8:
		if enc == ateComplex && t.size == 8 {
			t.kind = kindComplex
		}
		return t
	case 16:
		t.align = 16
		switch {
		case t.kind == kindInt || t.kind == kindUint:
			t.signed = t.kind == kindInt
			t.kind = kindWideInt
			if f.language(t.entry).IsRust() {
				t.align = 0
			}
			return t
		case t.kind == kindFloat:
			t.kind = kindWideFloat
			return t
		case enc == ateComplex:
			t.kind, t.align = kindComplex, 0
			return t
		}
	case 32:
		if enc == ateComplex { // of long doubles
			t.kind, t.align = kindComplex, 16
			return t
		}
	}
	t.kind = kindUnknown
	return t
}

// isByte tells a number of 8 bits from a character; both have one encoding. char is a
// character. signed char and unsigned char are numbers, because uint8_t is one of them.
func (f *frame) isByte(t ctype) bool {
	if l := f.language(t.entry); l.IsGo() || l.IsRust() {
		return true
	}
	switch t.name {
	case "signed char", "unsigned char", "u8", "uint8":
		return true
	}
	return false
}
