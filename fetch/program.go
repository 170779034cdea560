package fetch

import (
	"iter"
	"strings"

	"kprobe/symbols"
)

// Program is a definition compiled for one place: what to read at a hit, what to test, and how
// the record is laid out. It is data, so that another package can turn it into machine code.
// Eval is its interpreter, and defines the meaning that such code must have. A Program is not
// changed after Compile and may be used by several goroutines.
//
// # The record
//
// Eval's argument data, everything little-endian, offsets from its start:
//
//	0              fault bits: one u64 per 64 values that may fault (Bitmap bytes,
//	               none when no value can); bit ArgProgram.FaultBit set: not readable
//	Bitmap         the fixed part: for each argument at its Slot
//	                 scalar  8 bytes, extended to 64 bits as its type prints:
//	                         sign-extended for s8 … s64, else zero-extended; bitfields
//	                         extracted; f32 in the low half
//	                 array   Count elements of Type.Size bytes, as in memory
//	                 symstr  8 bytes: the address
//	                 text    8 bytes: a text word; arrays of text have Count of them
//	               each padded to 8 bytes; then the copy of the stack, if there is
//	               one (StackCopy)
//	Fixed          texts, each as long as it is, without NUL, in the order of the
//	               arguments, without padding between them
//
// A text word is u32 offset | u32 length << 32, with TextFault or TextTruncated set. A text
// that can't be read is the word TextFault alone. Bytes with a negative length have TextFault,
// the low half of their address instead of the offset, and the other 15 bits from bit 48 on,
// next to a length of 0. A faulted scalar's slot and a faulted array's elements are zero. The
// whole is at most MaxData bytes: texts that no longer fit are cut and marked TextTruncated.
// The end of the data is not padded.
type Program struct {
	// Entry is what a return probe reads at its function's entry.
	Entry []Capture
	Args  []ArgProgram
	// Filter decides whether a hit is recorded; nil: always.
	Filter *FilterProgram
	// Conditions are those of what else is done at a hit, by the numbers that CompileWith
	// was given; nil is always.
	Conditions []*FilterProgram
	Bitmap     int // bytes of fault bits
	Fixed      int // bytes of fault bits and fixed part
	// Symbols resolves symstr, in filters at the hit and for the record when it is decoded.
	// If it is nil, addresses are printed as numbers.
	Symbols Symbolizer
	// Texts are the strings in structures that are recorded whole. Each is an argument
	// after those of Fields. Decode puts it where it belongs.
	Texts []MemberText
	// MaxText is how many bytes of a text are shown; 0 is MaxString. Decode cuts
	// what is longer.
	MaxText int
	// Stack is the copy of the stack in the record; nil is none.
	Stack *StackCopy

	fields []Field
}

// Bits of a text word.
const (
	TextFault     = 1 << 63 // not readable
	TextTruncated = 1 << 62 // longer than TextMax or than what was left of MaxData
	textLenMask   = 1<<16 - 1
)

// MaxData is the most bytes of argument data of one record.
const MaxData = 32<<10 - 64

// Source is where a chain of steps starts.
type Source uint8

// The sources of values.
const (
	SourceReg   Source = iota // register Reg
	SourceImm                 // Imm
	SourceStack               // u64 at sp + Off; may fault
	SourceXMM                 // low 8 bytes of xmm Reg
	// SourceVector is the 8 bytes at Off of register Reg of a Vector.
	SourceVector
	SourceEntry // entry value N, captured by Program.Entry[N]
	SourcePID   // thread group
	SourceTID   // thread
	SourceCPU
	SourceTime // CLOCK_MONOTONIC, ns
	SourceText // Text: an immediate string
	SourceComm // the thread's name
	// SourceWatch is what a watchpoint knows of the access: Context.Watched, by N.
	SourceWatch
	// SourceComputed is the value of the source From after Steps.
	SourceComputed
)

// Load is one step of a chain: v = u64 at v + Off. If it faults, the value is a fault.
type Load struct{ Off int64 }

// Chain computes a 64-bit value: a source and then loads, one by one.
type Chain struct {
	Source Source
	Reg    Reg // of SourceReg; the number of SourceXMM and SourceVector
	N      int // of SourceEntry and SourceWatch
	Off    int64
	Imm    uint64
	Text   string
	From   Source // of SourceComputed
	Steps  []Step // of SourceComputed
	Loads  []Load
}

// root is the source behind a computed one.
func (c *Chain) root() Source {
	if c.Source == SourceComputed {
		return c.From
	}
	return c.Source
}

// MayFault reports whether computing the value can fail.
func (c *Chain) MayFault(entry []Capture) bool {
	for i := range c.Steps {
		switch c.Steps[i].Op {
		case StepLoad, StepDiff, StepBase, StepWhen, StepLabel, StepAtMost:
			return true
		}
	}
	switch c.root() {
	case SourceStack, SourceXMM, SourceVector, SourceWatch:
		return true
	case SourceEntry:
		return len(c.Loads) > 0 || entry[c.N].MayFault(nil)
	}
	return len(c.Loads) > 0
}

// Capture is a value that a return probe keeps from the entry.
//
// EvalEntry's data is one u64 of fault bits (bit N: value N) and then one u64
// for each capture.
type Capture struct{ Chain }

// EntrySize is the number of bytes that EvalEntry appends: 0 without captures.
func (p *Program) EntrySize() int {
	if len(p.Entry) == 0 {
		return 0
	}
	return 8 + 8*len(p.Entry)
}

// Store is what is done with a chain's value v.
type Store uint8

// The ways to store a value.
const (
	// StoreValue puts v into the slot, narrowed to Type.Size, extracted and extended.
	StoreValue Store = iota
	// StoreMem reads Type.Size bytes at v + Off, Count times for arrays; a scalar
	// is then extracted and extended like StoreValue's.
	StoreMem
	// StoreString reads text at v + Off up to NUL.
	StoreString
	// StoreStrings reads Count addresses at v + Off and the text at each. A text
	// that can't be read faults alone.
	StoreStrings
	// StoreText keeps Text or the thread's name (SourceText, SourceComm).
	StoreText
	// StoreSymbol keeps v, an address, in the slot. Decode turns it into text,
	// SYM+0xOFF/0xSIZE: the functions' places don't change while the record waits, and
	// looking one up takes longer than the rest of a hit.
	StoreSymbol
	// StorePath takes v as a file descriptor and stores its path. FilePath types also
	// accept a FILE *.
	StorePath
	// StoreParts puts the pieces of a value into the slot, each the value of a chain of its
	// own (Parts). If one faults, the whole value is a fault.
	StoreParts
	// StoreCounted reads text at v + Off, as many bytes as the chain Len says. More than
	// TextMax are cut. A negative number is a fault; for Bytes the address is kept. With
	// Unit the number is of units, and more than Max are cut.
	StoreCounted
	// StoreContent walks through the container at v + Off, or the one that consists of
	// Parts. Only a tracer can do this.
	StoreContent
)

// ArgProgram fetches and stores one argument.
type ArgProgram struct {
	Chain
	Store    Store
	StoreOff int64  // Off of StoreMem, StoreString, StoreStrings, StoreCounted
	Len      *Chain // of StoreCounted: the length in bytes, or in Units
	Unit     int    // of StoreCounted: bytes of a unit; 0: Len counts bytes
	Bounds   Limit  // of containers
	Parts    []Part // of StoreParts, and of StoreContent
	Limit    int    // of texts in memory: how many bytes are recorded; 0: MaxString
	Max      int    // of StoreString: the bytes of the array that the text lies in, 0: no array; with Unit: the most units
	Type     Type
	Slot     int // offset of the slot in the record
	Size     int // bytes of the slot, padded to 8
	FaultBit int // -1: can't fault, or the fault is in text words
}

// MemberText is a string in a structure.
type MemberText struct {
	Arg  int   // the argument that is the structure
	Path []int // the member, its member, …: indices of Value.Elems
	Text int   // the argument that is the text
}

// Field names and types one value of a record.
type Field struct {
	Name string
	Type Type
}

// Fields are the values of a record, in order. The slice must not be changed.
func (p *Program) Fields() []Field { return p.fields }

// NeedsTracer says which value only a process outside the target can have, at the moment of the
// hit, such as the text of a symbol that a filter compares. "" means that there is none, and
// machine code in the target can do everything.
func (p *Program) NeedsTracer() string {
	for i := range p.Args {
		a := &p.Args[i]
		if a.Store == StoreContent {
			name, _, _ := strings.Cut(a.Type.Layout.Content.Name, "<")
			return p.nameOf(i) + ", a " + strings.TrimPrefix(name, "const ") + " " + a.Type.Layout.Content.tracer() + ","
		}
	}
	for q := range p.Preds() {
		if q.Field == FieldArg && q.Arg < len(p.fields) && p.Args[q.Arg].Store == StoreSymbol {
			return p.fields[q.Arg].Name + ", which the filter compares, is a symbol's text: its lookup"
		}
	}
	return ""
}

// Preds returns the predicates of the filter and of all conditions.
func (p *Program) Preds() iter.Seq[*Pred] {
	return func(yield func(*Pred) bool) {
		for i := -1; i < len(p.Conditions); i++ {
			f := p.Filter
			if i >= 0 {
				f = p.Conditions[i]
			}
			for k := 0; f != nil && k < len(f.Preds); k++ {
				if !yield(&f.Preds[k]) {
					return
				}
			}
		}
	}
}

// nameOf is the name of the value that an argument belongs to.
func (p *Program) nameOf(arg int) string {
	for i := range p.Texts {
		if p.Texts[i].Text == arg {
			arg = p.Texts[i].Arg
		}
	}
	return p.fields[arg].Name
}

// Symbolizer names addresses. name is meaningless if ok is false. off is in bytes from the
// symbol's start, and size the symbol's size in bytes.
type Symbolizer interface {
	SymbolAt(a symbols.Addr) (name string, off, size uint64, ok bool)
}

// Env tells a definition what it needs to know about the process, or the file, for which it is
// compiled. Its errors are returned inside a *SyntaxError.
type Env interface {
	// AtEntry reports whether the place is the first instruction of a function,
	// where the calling convention says where arguments are.
	AtEntry() bool
	// Data finds a symbol: data for @SYM, also functions for filters. An empty
	// module is the probe's own first, then any.
	Data(module, symbol string) (symbols.Addr, uint64, error)
	// FileOffset maps an offset in the probed file to where it is mapped.
	FileOffset(off symbols.Off) (symbols.Addr, error)
	// Variable resolves a name, with its fields and casts, by debug information. If there
	// is none, the error is ErrNoDebugInfo or wraps it.
	Variable(text string) (Variable, error)
	// Parameters lists the formal parameters for $arg* and jprobes.
	Parameters() ([]Variable, error)
}

// Variable is where debug information finds a value.
type Variable struct {
	Name  string
	Chain Chain
	// InMemory says that the value is at the chain's address + Off, else it is
	// the chain's value.
	InMemory bool
	Off      int64
	Type     Type // what it prints as when the definition names no type
	// Len, if set, makes a text of the variable: as many bytes at the chain's
	// value, or with InMemory at its address + Off, as Len's value says.
	Len *Chain
	// Max, of a text in an array of characters, is the size of the array: the text
	// ends there, if no NUL ends it before. 0: it is in no array.
	Max int
	// Parts, if there are any, are the pieces of a value that lies in several
	// places; Chain is then nothing.
	Parts []Part
	// Behind says that an address leads to the value, so that a return probe reads
	// it at the return. The first Own steps of Chain, and LenOwn of Len, are that
	// address as the function was given it, which is kept from the entry.
	Behind      bool
	Own, LenOwn int
	// Owned says that a text belongs to the call, and may be gone at its return.
	Owned bool
	// Unit is, of a container whose elements lie at the chain's value, the bytes of
	// each; Len is then their number.
	Unit int
	// Pointer says that the value is an address, so that text can be read there.
	Pointer bool
	// AtReturn says that the value is the function's result: in a return probe
	// it is read at the return, where others are what they were at the entry.
	AtReturn bool
	// ByEntry says, of a result, that its address is the entry's: the first Own steps of
	// Chain are kept from there.
	ByEntry bool
}

// Which chooses variables.
type Which uint8

// The choices of variables.
const (
	WhichParams Which = iota // $arg*, $params: formal parameters
	WhichLocals              // $locals: what a function declares in itself
	WhichVars                // $vars: both
)

// DebugEnv is an Env that knows more of debug information. A definition can
// ask less of an Env that isn't one: $retval and $argN are then registers.
type DebugEnv interface {
	Env
	// Variables lists what is visible at the place. Of WhichLocals and WhichVars
	// those are left out that can't be had there.
	Variables(which Which) ([]Variable, error)
	// Argument is the N-th formal parameter, from 1. Any error leaves $argN to
	// the calling convention; a wrapped ErrNoValue or ErrInParts doesn't.
	Argument(n int) (Variable, error)
	// Result is what the function returns; ErrNoDebugInfo leaves $retval to
	// the calling convention.
	Result() (Variable, error)
}
