package mailbox

import (
	"encoding/json"
	"errors"
	"fmt"

	"kprobe/fetch"
	"kprobe/probe/assess"
	"kprobe/probe/results"
	"kprobe/probe/ring"
)

// Class is a class of errors that is told apart by those who print them.
type Class struct {
	Name string
	// Is reports whether an error is of the class.
	Is func(error) bool
	// Cause gives an error of the class to who asked.
	Cause func(text string) error
}

// Sentinel is the class of the errors that wrap err.
func Sentinel(name string, err error) Class {
	return Class{name, func(e error) bool { return errors.Is(e, err) }, func(string) error { return err }}
}

// Classes are the classes of errors that go through a mailbox; an error is of the
// first that it fits. Both sides have the same, or newer ones, which the other takes
// as errors of no class.
type Classes []Class

func (cs Classes) cause(name, text string) error {
	for _, c := range cs {
		if name != "" && c.Name == name {
			return c.Cause(text)
		}
	}
	return nil
}

// failure is an error, taken apart so that the one who asked can say it as its own.
type failure struct {
	Text string `json:"text"`
	// Def is the number of the definition at fault, from 1; 0: none is.
	Def    int    `json:"def,omitempty"`
	Class  string `json:"class,omitempty"`
	Code   uint8  `json:"code,omitempty"` // of a fetch.SyntaxError
	Col    int    `json:"col,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// remoteError is an error of another kprobe.
type remoteError struct {
	text  string
	cause error
}

func (e *remoteError) Error() string { return e.text }

// Unwrap gives the error that it is one of; nil where that is not known.
func (e *remoteError) Unwrap() error { return e.cause }

// pack takes an error apart. defs are the request's, as far as it had any.
func (cs Classes) pack(err error, defs []*fetch.Def) *failure {
	f := &failure{Text: err.Error()}
	var def *assess.DefError
	if errors.As(err, &def) {
		f.Text = def.Err.Error()
		for i, d := range defs {
			if d == def.Def {
				f.Def = i + 1
			}
		}
		err = def.Err
	}
	var parse *parseError
	if errors.As(err, &parse) {
		f.Def = parse.n + 1
	}
	var syntax *fetch.SyntaxError
	if errors.As(err, &syntax) {
		f.Code, f.Col, f.Detail = uint8(syntax.Code), syntax.Col, syntax.Detail
	}
	for _, c := range cs {
		if c.Is(err) {
			f.Class = c.Name
			break
		}
	}
	return f
}

// unpack makes an error of a failure as if it had happened here; defs are those
// that were sent.
func (cs Classes) unpack(f *failure, defs []*fetch.Def) error {
	ours := f.Def >= 1 && f.Def <= len(defs)
	var err error
	if f.Code != 0 && ours {
		syntax := *defs[f.Def-1].Error(fetch.Code(f.Code), f.Detail, nil)
		syntax.Col = f.Col
		if cause := cs.cause(f.Class, f.Detail); cause != nil {
			syntax.Err = &remoteError{f.Detail, cause}
		}
		err = &syntax
	} else {
		err = &remoteError{f.Text, cs.cause(f.Class, f.Text)}
	}
	if ours {
		return &assess.DefError{Def: defs[f.Def-1], Err: err}
	}
	return err
}

// maxText bounds each of an error's texts, in bytes. What has to be escaped takes up to
// six times as much of the answer.
const maxText = 4096

// Answer is the answer to a request that ended with err, which may be nil. defs are
// the request's definitions, as far as it had any.
func (cs Classes) Answer(err error, defs []*fetch.Def) []byte {
	var a answer
	if err != nil {
		a.Error = cs.pack(err, defs)
	}
	for most := maxText; most > 0; most /= 2 {
		if f := a.Error; f != nil {
			f.Text, f.Detail = f.Text[:min(len(f.Text), most)], f.Detail[:min(len(f.Detail), most)]
		}
		if b, err := json.Marshal(a); err == nil && len(b) <= ring.MaxAnswer {
			return b
		}
	}
	return []byte(`{"error":{"text":"the answer can't be written"}}`)
}

// ReadAnswer reads the answer to a request that had the definitions: an error as it
// would have been here, or the calls that are under way, if those were asked for.
func (cs Classes) ReadAnswer(body []byte, defs []*fetch.Def) ([]results.OpenCall, error) {
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, fmt.Errorf("the answer of the other kprobe is not understood: %w", err)
	}
	if a.Error != nil {
		return nil, cs.unpack(a.Error, defs)
	}
	return a.Open, nil
}
