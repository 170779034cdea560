package symbols

import "strconv"

// SymbolKind says what a symbol names.
type SymbolKind uint8

// The kinds of symbols.
const (
	// KindFunc is a function (STT_FUNC), or a label in code without a type.
	KindFunc SymbolKind = iota
	// KindIFunc is a function whose address is a resolver that chooses the
	// implementation (STT_GNU_IFUNC).
	KindIFunc
	// KindObject is a variable (STT_OBJECT, STT_COMMON), or a label in data.
	KindObject
	// KindTLS is a thread-local variable; its Vaddr is an offset in the TLS block.
	KindTLS
	// KindPLT is a stub that jumps to another module's function.
	KindPLT
	// KindFDE is code without a name whose bounds come from unwinding information.
	KindFDE
	// KindEntry is the file's entry point, if no symbol names it.
	KindEntry
)

// String returns the kind in one word.
func (k SymbolKind) String() string {
	names := [...]string{"function", "ifunc", "object", "tls", "plt", "fde", "entry"}
	if int(k) < len(names) {
		return names[k]
	}
	return "kind " + strconv.Itoa(int(k))
}

// Code reports whether a symbol of this kind names code that a probe can name.
func (k SymbolKind) Code() bool {
	switch k {
	case KindFunc, KindIFunc, KindPLT, KindFDE, KindEntry:
		return true
	}
	return false
}

// Binding says where a symbol is visible.
type Binding uint8

// The bindings of symbols.
const (
	// Local symbols are visible in their own source file.
	Local Binding = iota
	// Global symbols are visible everywhere.
	Global
	// Weak symbols are visible everywhere; global symbols take precedence.
	Weak
)

// String returns the binding in one word.
func (b Binding) String() string {
	switch b {
	case Local:
		return "local"
	case Global:
		return "global"
	case Weak:
		return "weak"
	}
	return "binding " + strconv.Itoa(int(b))
}

// Symbol is an entry of a symbol table, or of what replaces one: a PLT stub (NAME@plt), a
// function of Go's tables, a function from unwinding information (FDE_0xVADDR).
type Symbol struct {
	Name    string // as in the file (mangled), without the version
	Version string // of an exported name, such as GLIBC_2.2.5; "" is none
	Default bool   // the version is the one that NAME alone means (NAME@@Version)
	Vaddr   Vaddr
	Size    uint64 // in bytes; 0 is unknown
	Kind    SymbolKind
	Binding Binding
	File    string // source file of a local symbol (STT_FILE), as the compiler was given it
}

// Func is the function that contains an address.
type Func struct {
	Symbol     Symbol
	Start, End Vaddr // End is the first address after it
}

// Size is the length of the function in bytes.
func (f Func) Size() uint64 { return uint64(f.End - f.Start) }
