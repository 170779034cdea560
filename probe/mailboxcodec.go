package probe

import (
	"encoding/json"
	"errors"
	"fmt"

	"kprobe/fetch"
	"kprobe/symbols"
)

// Requests and answers in the mailbox are JSON (probe/ring, Mailbox). A
// definition goes as it was typed, so that columns of errors are those of the
// terminal where it was typed; the file that it was pinned to goes beside it.

// remoteRequest is what one kprobe asks of another.
type remoteRequest struct {
	Op   string      `json:"op"` // "add", "remove" or "open"
	Defs []remoteDef `json:"defs,omitempty"`
	// Events are GRP/EVENT, to be removed, where Defs has no deletions.
	Events []string `json:"events,omitempty"`
	// PID and From are of "open": calls of a process, from one on.
	PID  int `json:"pid,omitempty"`
	From int `json:"from,omitempty"`
}

type remoteDef struct {
	Text   string `json:"text"`
	Module string `json:"module,omitempty"`
}

// remoteAnswer says what became of it.
type remoteAnswer struct {
	Error *remoteFailure `json:"error,omitempty"`
	Open  []OpenCall     `json:"open,omitempty"` // calls that are under way
}

// remoteFailure is an error, taken apart so that the one who asked can say it
// as its own.
type remoteFailure struct {
	Text string `json:"text"`
	// Def is the number of the definition at fault, from 1; 0: none is.
	Def    int    `json:"def,omitempty"`
	Class  string `json:"class,omitempty"` // a key of remoteClasses
	Code   uint8  `json:"code,omitempty"`  // of a fetch.SyntaxError
	Col    int    `json:"col,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// remoteClasses are the errors that are told apart by those who print them.
var remoteClasses = map[string]error{
	"ambiguous": symbols.ErrAmbiguous, "no-symbol": symbols.ErrNoSymbol, "not-mapped": symbols.ErrNotMapped,
	"outside": symbols.ErrOutside, "not-executable": symbols.ErrNotExecutable, "no-debug-info": symbols.ErrNoDebugInfo,
	"no-event": ErrNoEvent, "closed": ErrClosed, "gone": symbols.ErrGone,
}

// The classes of errors that are types.
const (
	classRefused  = "refused"
	classBoundary = "boundary"
)

// remoteError is an error of another kprobe.
type remoteError struct {
	text  string
	cause error
}

func (e *remoteError) Error() string { return e.text }

// Unwrap gives the error that it is one of; nil where that is not known.
func (e *remoteError) Unwrap() error { return e.cause }

func packDefs(defs []*fetch.Def) []remoteDef {
	var out []remoteDef
	for _, d := range defs {
		out = append(out, remoteDef{Text: d.Text, Module: d.Place.Module})
	}
	return out
}

// unpackDefs parses the definitions of a request, or its deletions.
func unpackDefs(list []remoteDef, deletions bool) ([]*fetch.Def, error) {
	var out []*fetch.Def
	for i, r := range list {
		d, err := fetch.Parse(r.Text)
		switch {
		case err != nil:
			return nil, &remoteDefError{i, err}
		case (d.Kind == fetch.Delete) != deletions:
			return nil, &remoteDefError{i, errors.New("to add and to delete are different requests")}
		}
		if r.Module != "" {
			placed := *d
			placed.Place.Module = r.Module
			d = &placed
		}
		out = append(out, d)
	}
	return out, nil
}

// remoteDefError is an error of a definition that could not be parsed.
type remoteDefError struct {
	n   int
	err error
}

func (e *remoteDefError) Error() string { return e.err.Error() }
func (e *remoteDefError) Unwrap() error { return e.err }

// packError takes an error apart. defs are the request's, as far as it had any.
func packError(err error, defs []*fetch.Def) *remoteFailure {
	f := &remoteFailure{Text: err.Error()}
	var def *DefError
	if errors.As(err, &def) {
		f.Text = def.Err.Error()
		for i, d := range defs {
			if d == def.Def {
				f.Def = i + 1
			}
		}
		err = def.Err
	}
	var parse *remoteDefError
	if errors.As(err, &parse) {
		f.Def = parse.n + 1
	}
	var syntax *fetch.SyntaxError
	var refused *RefusedError
	var boundary *BoundaryError
	switch {
	case errors.As(err, &syntax):
		f.Code, f.Col, f.Detail = uint8(syntax.Code), syntax.Col, syntax.Detail
	case errors.As(err, &refused):
		f.Class = classRefused
	case errors.As(err, &boundary):
		f.Class = classBoundary
	}
	for name, is := range remoteClasses {
		if f.Class == "" && errors.Is(err, is) {
			f.Class = name
		}
	}
	return f
}

// unpack makes an error of a failure as if it had happened here; defs are those
// that were sent.
func (f *remoteFailure) unpack(defs []*fetch.Def) error {
	var err error
	switch {
	case f.Code != 0 && f.Def >= 1 && f.Def <= len(defs):
		syntax := *defs[f.Def-1].Error(fetch.Code(f.Code), f.Detail, nil)
		syntax.Col = f.Col
		if cause := remoteClasses[f.Class]; cause != nil {
			syntax.Err = &remoteError{f.Detail, cause}
		}
		err = &syntax
	case f.Class == classRefused:
		err = &remoteError{f.Text, &RefusedError{Rule: f.Text}}
	case f.Class == classBoundary:
		err = &remoteError{f.Text, &BoundaryError{}}
	default:
		err = &remoteError{f.Text, remoteClasses[f.Class]}
	}
	if f.Def >= 1 && f.Def <= len(defs) {
		return &DefError{Def: defs[f.Def-1], Err: err}
	}
	return err
}

func packAnswer(err error, defs []*fetch.Def) []byte {
	var a remoteAnswer
	if err != nil {
		a.Error = packError(err, defs)
		const most = 4096
		if len(a.Error.Text) > most {
			a.Error.Text = a.Error.Text[:most]
		}
		if len(a.Error.Detail) > most {
			a.Error.Detail = a.Error.Detail[:most]
		}
	}
	b, merr := json.Marshal(a)
	if merr != nil {
		b = []byte(`{"error":{"text":"the answer can't be written"}}`)
	}
	return b
}

func unpackAnswer(body []byte, defs []*fetch.Def, a *remoteAnswer) error {
	if err := json.Unmarshal(body, a); err != nil {
		return fmt.Errorf("the answer of the other kprobe is not understood: %w", err)
	}
	if a.Error != nil {
		return a.Error.unpack(defs)
	}
	return nil
}
