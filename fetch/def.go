package fetch

import (
	"strconv"
	"strings"

	"kprobe/symbols"
)

// Kind is what a definition asks for.
type Kind uint8

// The kinds of definition.
const (
	Entry  Kind = iota // p: when an address is reached
	Return             // r and %return: when a function returns
	Jprobe             // j: at entry, every formal parameter
	Delete             // -: and !: forget a definition
	Watch              // w: when memory is read or written
)

// String returns the letter of the definition language.
func (k Kind) String() string {
	switch k {
	case Return:
		return "r"
	case Jprobe:
		return "j"
	case Delete:
		return "-"
	case Watch:
		return "w"
	}
	return "p"
}

// DefaultGroup is the group of events whose definition names none.
const DefaultGroup = "kprobes"

// The language's limits (kernel/trace/trace_probe.h).
const (
	MaxArgs        = 128  // arguments of a probe
	MaxArgText     = 255  // bytes of an argument's expression
	MaxArgName     = 32   // bytes of an argument's name
	MaxArray       = 64   // elements of an array
	MaxString      = 4096 // bytes of a string that are recorded
	MaxName        = 63   // bytes of an event's or a group's name
	MaxOps         = 16   // steps of one argument
	MaxNested      = 8    // dereferences inside each other
	MaxFixed       = 3072 // bytes of an event's values in memory, strings as one word of 4
	MaxActive      = 4096 // instances of a return probe
	MaxStackN      = 2048 // N of $stackN and $argN: 16 KiB of words
	MaxFilterText  = 256  // bytes of a text that a filter compares with
	MaxEntryValues = 64   // values that a return probe keeps from the entry
)

// Def is one definition, checked as far as its text goes. A Def is not changed
// after Parse and may be used by several goroutines.
type Def struct {
	Kind     Kind
	Named    bool // the event's name was written
	HasPlace bool // false only for a Delete of every place
	// Limit bounds what is recorded of containers; zero is the default.
	Limit Limit
	Group string // as written, or DefaultGroup; a Delete's may be "": any group
	Event string // as written, or made from the place
	// MaxActive is the number of instances of a return probe, 0: the default.
	MaxActive int
	Place     symbols.Place
	Args      []*Arg
	// Except are places that the pattern matches but that are left out, because other
	// definitions have them.
	Except []symbols.Place
	// Called says that it is for the entry of a call whose return is probed, too: what has no
	// return of its own, such as f.cold, is refused as in a Return, and a pattern leaves it out.
	Called bool
	// Stack is how many frames of the user stack are recorded; 0 is no stack.
	Stack  int
	Filter *Filter // nil: every hit passes
	// Text is the definition as written, its words joined by single blanks.
	Text string
	// DeleteArgs are the words behind a Delete's place.
	DeleteArgs []string

	placeCol int
}

// Arg is one fetch argument of a definition.
type Arg struct {
	Name string // as written, or arg1, arg2 …
	Text string // the expression with its type, as written
	Expr *Expr
	Type Type
	// Len is the length of Bytes; nil for all others. It is an argument without a name.
	Len   *Arg
	Named bool // the name was written
	// TypeGiven reports whether the type was written or follows from the
	// expression; if not, debug information may choose a better one.
	TypeGiven bool
	// AtEntry says that a return probe reads it at the function's entry.
	AtEntry bool
	// Optional leaves out a function's result if it has none, and parameters if there is no
	// debug information about them.
	Optional bool

	col, bodyCol, typeCol int // in Def.Text
}

// Error makes an error about the definition's place, for callers that only find out later that
// nothing, or too much, is there. err may be nil.
func (d *Def) Error(code Code, detail string, err error) *SyntaxError {
	e := newError(code, d.Text, d.placeCol, detail)
	e.Err = err
	return e
}

// String returns the definition in the kernel's canonical form, which Parse accepts: names
// always present, %return as r, numbers of places as symbols.Place prints them.
func (d *Def) String() string {
	var b strings.Builder
	b.WriteString(d.Kind.String())
	if d.Kind == Return && d.MaxActive != 0 {
		b.WriteString(strconv.Itoa(d.MaxActive))
	}
	b.WriteByte(':')
	if d.Group != "" {
		b.WriteString(d.Group)
		b.WriteByte('/')
	}
	b.WriteString(d.Event)
	if d.HasPlace {
		b.WriteByte(' ')
		b.WriteString(quotePlace(d.Place))
	}
	for _, a := range d.DeleteArgs {
		b.WriteByte(' ')
		b.WriteString(a)
	}
	for _, a := range d.Args {
		if d.Kind == Jprobe {
			// Its one argument is what the letter means.
			break
		}
		b.WriteByte(' ')
		b.WriteString(a.String())
	}
	b.WriteString(d.boundsSuffix())
	b.WriteString(d.stackSuffix())
	if d.Filter != nil {
		b.WriteString(" if ")
		b.WriteString(d.Filter.Text)
	}
	return b.String()
}

// String returns NAME=EXPRESSION[:TYPE]; $arg* has no name.
func (a *Arg) String() string {
	if a.Expr != nil && (a.Expr.Op == ExprAllArgs || !a.Named && !isGoodName(a.Name)) {
		return a.Text
	}
	return a.Name + "=" + a.Text
}

// quotePlace quotes a place that holds blanks.
func quotePlace(p symbols.Place) string {
	s := p.String()
	if strings.IndexFunc(s, func(r rune) bool { return r < 0x80 && isBlank(byte(r)) }) >= 0 {
		return `"` + s + `"`
	}
	return s
}
