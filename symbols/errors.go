package symbols

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The classes of errors; the typed errors of this package wrap one of them.
var (
	// ErrNoSymbol: no file that was searched has the name.
	ErrNoSymbol = errors.New("no such symbol")
	// ErrAmbiguous: several functions have the name.
	ErrAmbiguous = errors.New("the name is not unique")
	// ErrNotMapped: the process has no such file mapped.
	ErrNotMapped = errors.New("not mapped in this process")
	// ErrNotExecutable: the place is not in code.
	ErrNotExecutable = errors.New("not in executable code")
	// ErrNotConstant: the memory isn't the file's, or a program may write to it.
	ErrNotConstant = errors.New("not in read-only data of the file")
	// ErrOutside: the offset leads out of the function.
	ErrOutside = errors.New("outside the function")
	// ErrUnboundIFunc: the process has not chosen the implementation yet.
	ErrUnboundIFunc = errors.New("the implementation of this function is not chosen yet")
	// ErrBadELF: the file is no ELF file of x86-64, or is damaged.
	ErrBadELF = errors.New("not a usable ELF file")
	// ErrBadMaps: a line of a maps file has an unknown form.
	ErrBadMaps = errors.New("unknown form of a mapping")
	// ErrGone: the process has ended.
	ErrGone = errors.New("no such process")
	// ErrPermission: the kernel does not let this user look.
	ErrPermission = errors.New("not permitted: kprobe must run as the owner of the process, or as root")
	// ErrNoLine: no code belongs to the source line.
	ErrNoLine = errors.New("the line has no code")
	// ErrNoDebugInfo: source lines were asked of a file without debug information.
	ErrNoDebugInfo = errors.New("no debug information about source lines")
)

// NotFoundError says that a symbol exists nowhere it was looked for.
// It wraps ErrNoSymbol.
type NotFoundError struct {
	What  string   // the name as it was asked for
	Kind  string   // what kind of name it is; "" is a symbol
	Where string   // the module, file or process that was searched
	Near  []string // the closest names that exist, best first, each usable as input
	// Stripped is the file in which the name may have been: of the module that was
	// named, or the program. It has the names of exported functions only. "" is none.
	Stripped string
	// OtherBuild is the debug file of another build that was found for it; nil is
	// none.
	OtherBuild *OtherBuildError
}

func (e *NotFoundError) Error() string {
	s := fmt.Sprintf("no %s %s in %s", cmp.Or(e.Kind, "symbol"), e.What, e.Where)
	if len(e.Near) > 0 {
		s += "; the closest: " + strings.Join(e.Near, ", ")
	} else if e.Kind == "" {
		s += "; kprobe functions lists the names"
	}
	return s
}

// Unwrap returns ErrNoSymbol.
func (e *NotFoundError) Unwrap() error { return ErrNoSymbol }

// Candidate is one of the functions that an ambiguous name may mean.
type Candidate struct {
	Text string // what to write to mean this one
	Note string // its address, and its readable name where Text is another
}

// AmbiguousError says that a name means several functions of one module.
// It wraps ErrAmbiguous.
type AmbiguousError struct {
	Name       string
	Candidates []Candidate // by address

	list []Symbol // what the candidates are
}

func (e *AmbiguousError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is the name of %d functions; write one of: ", e.Name, len(e.Candidates))
	for i, c := range e.Candidates {
		if i == 8 {
			fmt.Fprintf(&b, " and %d more", len(e.Candidates)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(c.Text)
		if c.Note != "" {
			b.WriteString(" (" + c.Note + ")")
		}
	}
	return b.String()
}

// Unwrap returns ErrAmbiguous.
func (e *AmbiguousError) Unwrap() error { return ErrAmbiguous }

// NotMappedError says that no mapped file has the module's name.
// It wraps ErrNotMapped.
type NotMappedError struct {
	Module     string
	Candidates []string // the names of what is mapped, the closest first; the paths of files that have the module's name and lie elsewhere
	Static     bool     // the process has no libraries, only its program
}

func (e *NotMappedError) Error() string {
	s := "the process has not mapped " + e.Module
	if len(e.Candidates) > 0 {
		s += "; it has " + strings.Join(e.Candidates, ", ")
	}
	return s
}

// Unwrap returns ErrNotMapped.
func (e *NotMappedError) Unwrap() error { return ErrNotMapped }

// NotCodeError says that a place is not in code, and what is there instead.
// It wraps ErrNotExecutable.
type NotCodeError struct {
	Place string // as written
	Addr  Addr   // 0 where it has none
	Lies  string // where Addr is: "is not mapped", "is in the data object environ of libc.so.6"; without Addr a whole sentence
}

func (e *NotCodeError) Error() string {
	if e.Addr == 0 {
		return fmt.Sprintf("%s can't be probed: %s", e.Place, e.Lies)
	}
	at := e.Addr.String()
	if at == e.Place {
		at = "it"
	}
	return fmt.Sprintf("%s can't be probed: %s %s; only code can be probed", e.Place, at, e.Lies)
}

// Unwrap returns ErrNotExecutable.
func (e *NotCodeError) Unwrap() error { return ErrNotExecutable }

// OutsideError says that SYM+offs leads past the function's end.
// It wraps ErrOutside.
type OutsideError struct {
	Name   string
	Offset int64  // as written
	Size   uint64 // of the function, in bytes
	Lands  string // where the offset leads, as SYM+offs, or ""
}

func (e *OutsideError) Error() string {
	s := fmt.Sprintf("%s%+d is outside %s, which is %d bytes long", e.Name, e.Offset, e.Name, e.Size)
	if e.Lands != "" {
		s += "; it leads to " + e.Lands + ": write that if you mean it"
	}
	return s
}

// Unwrap returns ErrOutside.
func (e *OutsideError) Unwrap() error { return ErrOutside }

// UnboundIFuncError says that a function has several implementations and that
// nothing in the process tells yet which one it uses: the caller may call the
// resolver in the process. It wraps ErrUnboundIFunc.
type UnboundIFuncError struct {
	Symbol   Symbol
	Module   *Module
	Resolver Addr // returns the implementation's address in rax
}

func (e *UnboundIFuncError) Error() string {
	return fmt.Sprintf("%s has several implementations, and the process has not chosen one yet (its resolver is at %v)",
		e.Symbol.Name, e.Resolver)
}

// Unwrap returns ErrUnboundIFunc.
func (e *UnboundIFuncError) Unwrap() error { return ErrUnboundIFunc }

// LineError says that no code belongs to a source line, and which lines near it
// have some; or that none of the lines that a glob matches has. It wraps
// ErrNoLine.
type LineError struct {
	File          string // as written, or the function's
	Line          int
	Lines         string // a glob in place of Line; "" is none
	Before, After int    // the nearest lines with code, of a glob the last and the first; 0 is none
}

func (e *LineError) Error() string {
	s := fmt.Sprintf("%s:%d has no code", e.File, e.Line)
	if e.Lines != "" {
		s = fmt.Sprintf("%s:%s matches no line with code", e.File, e.Lines)
	}
	switch {
	case e.Lines != "" && e.After != 0:
		s += fmt.Sprintf("; the first line with code is %d, the last is %d", e.After, e.Before)
	case e.Before != 0 && e.After != 0:
		s += fmt.Sprintf("; the nearest lines with code are %d and %d", e.Before, e.After)
	case e.Before != 0 || e.After != 0:
		s += fmt.Sprintf("; the nearest line with code is %d", e.Before+e.After)
	}
	return s
}

// Unwrap returns ErrNoLine.
func (e *LineError) Unwrap() error { return ErrNoLine }

// FormatError says what is wrong with an ELF file. It wraps ErrBadELF.
type FormatError struct {
	Path string
	What string // the part that is wrong: "section 7"
	Why  string
}

func (e *FormatError) Error() string {
	return "read " + strconv.Quote(e.Path) + ": " + e.What + " " + e.Why
}

// Unwrap returns ErrBadELF.
func (e *FormatError) Unwrap() error { return ErrBadELF }

// OtherBuildError says that a debug file was found and not used, because it belongs to another
// build of the program. It wraps ErrNoDebugInfo.
type OtherBuildError struct {
	Path string
	Why  string // what tells the builds apart
}

func (e *OtherBuildError) Error() string {
	return "the debug file " + strconv.Quote(e.Path) + " is of another build: " + e.Why
}

// Unwrap returns ErrNoDebugInfo.
func (e *OtherBuildError) Unwrap() error { return ErrNoDebugInfo }
