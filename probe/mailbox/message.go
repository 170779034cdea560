// Package mailbox carries requests from one kprobe to another that traces a process: the
// encoding of requests and answers, how a request is posted and waited for, and who may ask.
//
// Either side may be wrong, or a hostile program. What doesn't fit is an error. An answer can
// only contain an error's text and class, or data to be shown.
package mailbox

import (
	"encoding/json"
	"errors"
	"fmt"

	"kprobe/fetch"
	"kprobe/probe/results"
	"kprobe/probe/ring"
)

// Requests and answers are JSON, in the places that ring.Mailbox has for them. A
// definition goes as it was typed, so that columns of errors are those of the
// terminal where it was typed; the file that it was pinned to goes beside it.

// What can be asked for.
const (
	Add    = "add"    // Defs
	Remove = "remove" // what the deletions in Defs name, or Events
	Open   = "open"   // calls of PID that are under way, from From on
)

// Request is what one kprobe asks of another.
type Request struct {
	Op   string `json:"op"` // Add, Remove or Open
	Defs []Def  `json:"defs,omitempty"`
	// Events are GRP/EVENT, to be removed, where Defs has no deletions.
	Events []string `json:"events,omitempty"`
	PID    int      `json:"pid,omitempty"`
	From   int      `json:"from,omitempty"`
}

// Def is a definition in a request.
type Def struct {
	Text   string `json:"text"`
	Module string `json:"module,omitempty"`
}

// answer says what became of a request.
type answer struct {
	Error *failure           `json:"error,omitempty"`
	Open  []results.OpenCall `json:"open,omitempty"` // calls that are under way
}

// NewDefs gives definitions as they go into a request.
func NewDefs(defs []*fetch.Def) []Def {
	var out []Def
	for _, d := range defs {
		out = append(out, Def{Text: d.Text, Module: d.Place.Module})
	}
	return out
}

// ReadRequest reads a request's body.
func ReadRequest(body []byte) (*Request, error) {
	q := &Request{}
	if err := json.Unmarshal(body, q); err != nil {
		return nil, fmt.Errorf("the request is not understood: %w", err)
	}
	return q, nil
}

// Definitions parses the request's definitions, which are deletions where it asks
// to remove. An answer to its error says which it was.
func (q *Request) Definitions() ([]*fetch.Def, error) {
	var out []*fetch.Def
	for i, r := range q.Defs {
		d, err := fetch.Parse(r.Text)
		switch {
		case err != nil:
			return nil, &parseError{i, err}
		case (d.Kind == fetch.Delete) != (q.Op == Remove):
			return nil, &parseError{i, errors.New("to add and to delete are different requests")}
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

// parseError is an error of a definition that could not be parsed.
type parseError struct {
	n   int
	err error
}

func (e *parseError) Error() string { return e.err.Error() }
func (e *parseError) Unwrap() error { return e.err }

// maxOpenPage bounds the calls in one answer, in bytes; the rest is asked for by
// further requests.
const maxOpenPage = ring.MaxAnswer - 1024

// OpenAnswer is the answer to a request for calls: as many of the list as fit, from
// the one that was asked for on.
func (q *Request) OpenAnswer(list []results.OpenCall) ([]byte, error) {
	a := answer{}
	size := 0
	for _, c := range list[min(max(q.From, 0), len(list)):] {
		b, err := json.Marshal(&c)
		if err != nil {
			continue
		}
		if size += len(b) + 1; size > maxOpenPage {
			break
		}
		a.Open = append(a.Open, c)
	}
	return json.Marshal(a)
}
