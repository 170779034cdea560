package symbols

import (
	"strconv"
	"strings"
)

// PlaceKind says which of the forms of a place was written.
type PlaceKind uint8

// The forms of a place.
const (
	// PlaceSymbol is [MOD:]SYM[+offs][@FILE.c]; SYM may be a shell glob.
	PlaceSymbol PlaceKind = iota
	// PlaceAddr is 0xADDR, an address in the process.
	PlaceAddr
	// PlaceVaddr is MOD:0xVADDR, an address as in the file (MOD has no slash).
	PlaceVaddr
	// PlaceOffset is PATH:0xOFFSET[(REFCTR)], a file offset as in uprobe_events
	// (PATH has a slash).
	PlaceOffset
	// PlaceLine is FILE.c:LINE (File and Line set) or FUNC:LINE (Symbol and
	// Line set, lines counted from the function's first). LINE may be a shell
	// glob over line numbers, and FUNC one over names.
	PlaceLine
	// PlaceUSDT is [MOD:]%PROVIDER:NAME, a statically defined probe: all the places
	// of that name. Both (Provider and Symbol) may be shell globs.
	PlaceUSDT
	// PlaceData is [r|w|rw]@ADDR|[MOD:]SYM[+offs]|VARIABLE[:LEN], memory that is
	// watched, not code: Resolve knows none.
	PlaceData
)

// Place is a probe place as written in a definition, parsed but not looked up.
// The zero Place is an empty symbol and resolves to nothing.
type Place struct {
	Kind   PlaceKind
	Return bool   // %return was written
	Module string // MOD or PATH; "" is any module
	Symbol string // SYM as written: raw, demangled, versioned (open@GLIBC_2.2.5 as SYM@@VER is not a File), or a glob
	File   string // of SYM@FILE.c or FILE.c:LINE
	Line   int    // of PlaceLine; 1 is the first
	Lines  string // of PlaceLine: a glob over line numbers in place of Line; "" is none
	Offset int64  // +offs of PlaceSymbol, in bytes from the symbol
	Value  uint64 // the Addr, Vaddr or Off of the numeric forms
	RefCtr Off    // of PlaceOffset; 0 is none
	// Provider is that of PlaceUSDT, whose NAME is Symbol.
	Provider string
	// Access is r, w or rw, of PlaceData, and Length the bytes that are watched, 0
	// where none was written. Symbol is then a name, or a variable with members; ""
	// for the address Value, which is NoData where it is set later.
	Access string
	Length int
}

// NoData is the Value of a PlaceData that watches nothing yet: -1.
const NoData = ^uint64(0)

// IsGlob reports whether the symbol, its module or the line is a shell pattern that
// may name several.
// A name that holds pattern characters because C++ or Rust put them there
// ("operator*", "operator[]", "foo<int*>") is still matched literally first.
func (p Place) IsGlob() bool {
	if p.Kind == PlaceUSDT {
		return strings.ContainsAny(p.Provider+p.Symbol, "*?[")
	}
	return p.Lines != "" || p.Kind == PlaceSymbol && wildModule(p.Module) || (p.Kind == PlaceSymbol || p.Kind == PlaceLine) && strings.ContainsAny(p.Symbol, "*?[")
}

// String returns the place in the form that the definition language takes back,
// without %return.
func (p Place) String() string {
	var b strings.Builder
	if p.Kind == PlaceData {
		b.WriteString(p.Access + "@")
	}
	if p.Module != "" {
		b.WriteString(p.Module)
		b.WriteByte(':')
	}
	switch p.Kind {
	case PlaceAddr, PlaceVaddr:
		b.WriteString("0x")
		b.WriteString(strconv.FormatUint(p.Value, 16))
	case PlaceOffset:
		b.WriteString("0x")
		b.WriteString(strconv.FormatUint(p.Value, 16))
		if p.RefCtr != 0 {
			b.WriteString("(0x" + strconv.FormatUint(uint64(p.RefCtr), 16) + ")")
		}
	case PlaceLine:
		if p.File != "" {
			b.WriteString(p.File)
		} else {
			b.WriteString(p.Symbol)
		}
		b.WriteByte(':')
		if p.Lines != "" {
			b.WriteString(p.Lines)
		} else {
			b.WriteString(strconv.Itoa(p.Line))
		}
	case PlaceUSDT:
		b.WriteString("%" + p.Provider + ":" + p.Symbol)
	case PlaceData:
		p.writeData(&b)
	case PlaceSymbol:
		b.WriteString(p.Symbol)
		if p.File != "" {
			b.WriteByte('@')
			b.WriteString(p.File)
		}
		if p.Offset != 0 {
			b.WriteByte('+')
			b.WriteString(strconv.FormatInt(p.Offset, 10))
		}
	}
	return b.String()
}

// writeData writes what is behind the @ and the module of a PlaceData.
func (p Place) writeData(b *strings.Builder) {
	switch {
	case p.Symbol != "":
		b.WriteString(p.Symbol)
		if p.Offset > 0 {
			b.WriteByte('+')
		}
		if p.Offset != 0 {
			b.WriteString(strconv.FormatInt(p.Offset, 10))
		}
	case p.Value == NoData:
		b.WriteString("-1")
	default:
		b.WriteString("0x" + strconv.FormatUint(p.Value, 16))
	}
	if p.Length != 0 {
		b.WriteString(":" + strconv.Itoa(p.Length))
	}
}
