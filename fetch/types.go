package fetch

import "strconv"

// Base is what a type is made of.
type Base uint8

// The bases of types.
const (
	Hex        Base = iota // x8 … x64, and the default: 0x%x
	Unsigned               // u8 … u64: %u
	Signed                 // s8 … s64: %d
	Char                   // char: '%c'
	Float                  // f32, f64
	String                 // string: text at an address, up to NUL
	UString                // ustring: the same; a process has one memory
	SymbolName             // symbol: an address, printed as SYM+0xOFF/0xSIZE
	SymbolText             // symstr: the same, decoded as text
	Path                   // %pd: the path behind a file descriptor
	FilePath               // %pD: the same, also from a C library's FILE *
	Bytes                  // bytes[LENGTH]: as many bytes at an address as another fetch says
	// Container has a Layout with a Content.
	Container
	// ID is a number that is known by its digits, 16 hexadecimal ones for each element
	// of 8 bytes: a trace's has two.
	ID
	// Struct asks for all of a variable's structure, or of the one that a pointer
	// points to. Compile puts its members in place of it.
	Struct
)

// Type is the type of a fetched value. The zero Type is no type; DefaultType
// is what an argument without one gets.
type Type struct {
	Base Base
	// Size is the bytes of one element in memory: 1, 2, 4 or 8. Strings,
	// symbol texts and paths have 8, the size of their data-location word.
	Size uint8
	// Count is the number of elements of an array; 0 is no array.
	Count uint8
	// BitWidth and BitOff are those of a bitfield bWIDTH@OFF/SIZE*8, counted
	// from the lowest bit; BitWidth 0 is no bitfield.
	BitWidth, BitOff uint8
	// Layout is what debug information adds: names of values, members. nil is
	// none.
	Layout *Layout
}

// DefaultType is x64, the type of an argument that names none.
func DefaultType() Type { return Type{Base: Hex, Size: 8} }

// IsText reports whether values of the type are recorded as text behind the
// fixed part of the record.
func (t Type) IsText() bool {
	switch t.Base {
	case String, UString, SymbolText, Path, FilePath, Bytes, Container:
		return true
	}
	return false
}

// isTextArray reports whether values are characters in place, which a filter
// compares as the text up to the first NUL.
func (t Type) isTextArray() bool { return t.Base == Char && t.Size == 1 && t.Count != 0 }

// isWideID reports whether values are numbers of several words that are known by their
// digits, which a filter compares as text.
func (t Type) isWideID() bool { return t.Base == ID && t.Count != 0 }

// IsArray reports whether values have elements.
func (t Type) IsArray() bool { return t.Count != 0 }

// Elem is the type of one element of an array; of other types it is t.
func (t Type) Elem() Type {
	t.Count = 0
	if t.Layout != nil && (t.Layout.Text || t.Layout.Members != nil) {
		t.Layout = nil
	}
	return t
}

// String returns the type as a definition writes it.
func (t Type) String() string {
	if t.Layout != nil && t.Layout.Name != "" {
		return t.Layout.Name
	}
	var s string
	bits := strconv.Itoa(int(t.Size) * 8)
	switch {
	case t.Size == 0:
		return ""
	case t.BitWidth != 0:
		s = "b" + strconv.Itoa(int(t.BitWidth)) + "@" + strconv.Itoa(int(t.BitOff)) + "/" + bits
	case t.Base == Hex:
		s = "x" + bits
	case t.Base == Unsigned:
		s = "u" + bits
	case t.Base == Signed:
		s = "s" + bits
	case t.Base == Float:
		s = "f" + bits
	default:
		s = t.Base.name()
	}
	if t.Count != 0 {
		s += "[" + strconv.Itoa(int(t.Count)) + "]"
	}
	return s
}

func (b Base) name() string {
	switch b {
	case ID:
		return "id"
	case Char:
		return "char"
	case String:
		return "string"
	case UString:
		return "ustring"
	case SymbolName:
		return "symbol"
	case SymbolText:
		return "symstr"
	case Path:
		return "%pd"
	case FilePath:
		return "%pD"
	case Bytes:
		return "bytes"
	case Struct:
		return "struct"
	}
	return ""
}

// namedType finds a type by its name, without array or bitfield.
func namedType(s string) (Type, bool) {
	for b := Char; b <= Struct; b++ {
		if b == Float || b == Container || b.name() != s {
			continue
		}
		if b == Char {
			return Type{Base: b, Size: 1}, true
		}
		return Type{Base: b, Size: 8}, true
	}
	if len(s) < 2 {
		return Type{}, false
	}
	var t Type
	switch s[0] {
	case 'x':
		t.Base = Hex
	case 'u':
		t.Base = Unsigned
	case 's':
		t.Base = Signed
	case 'f':
		t.Base = Float
	default:
		return Type{}, false
	}
	switch s[1:] {
	case "8":
		t.Size = 1
	case "16":
		t.Size = 2
	case "32":
		t.Size = 4
	case "64":
		t.Size = 8
	default:
		return Type{}, false
	}
	if t.Base == Float && t.Size < 4 {
		return Type{}, false
	}
	return t, true
}
