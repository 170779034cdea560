package assess

import (
	"errors"
	"fmt"

	"kprobe/fetch"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// Checked is what Check found out about a definition.
type Checked struct {
	// Sites are the places that would be probed. Those of a glob that can't be
	// probed are left out, as when it is armed; so are the inlined instances of a
	// function that has a body, whatever can be done there: looking for them
	// takes reading debug information.
	Sites []symbols.Site
	// Module is the file that the places are in; nil where they are in several.
	Module *symbols.Module
	// Unbound reports that the implementation behind the name is chosen when
	// the program runs (an IFUNC): what it is can't be checked before, and
	// Sites is empty.
	Unbound bool
}

// Check says whether a definition can be armed, as far as files tell: its
// places exist and start instructions that can run out of line, its arguments
// can be fetched there. It works on files as on processes and touches neither;
// memory that differs from its file shows only when the probe is armed.
//
// Errors are *DefError around those of Space.Resolve, *BoundaryError,
// *RefusedError and *fetch.SyntaxError.
func Check(space *symbols.Space, d *fetch.Def) (*Checked, error) {
	c, err := check(space, d)
	if err != nil {
		return nil, &DefError{Def: d, Err: err}
	}
	return c, nil
}

func check(space *symbols.Space, d *fetch.Def) (*Checked, error) {
	if d.Kind == fetch.Watch {
		return checkWatch(space, d)
	}
	places, err := space.Resolve(d.Place)
	var unbound *symbols.UnboundIFuncError
	if errors.As(err, &unbound) {
		return &Checked{Unbound: true, Module: unbound.Module}, nil
	}
	if err != nil {
		return nil, err
	}
	c := &Checked{}
	var refused *survey.RefusedError
	var inside *survey.BoundaryError
	var without Partly
	var golang Programs
	for _, w := range places {
		err := checkSite(space, &golang, d, w)
		if errors.As(err, &refused) && (d.Place.IsGlob() || w.NamedAs().USDT != nil && len(places) > 1) || errors.As(err, &inside) && d.Place.IsGlob() || len(places) > 1 && without.Skip(w, err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		c.Sites = append(c.Sites, w)
		if len(c.Sites) == 1 {
			c.Module = w.Module
		} else if c.Module != w.Module {
			c.Module = nil
		}
	}
	if len(c.Sites) == 0 && without.First != nil {
		return nil, without.First
	}
	switch {
	case len(c.Sites) > 0:
	case refused != nil:
		return nil, refused
	case inside != nil:
		return nil, inside
	}
	return c, nil
}

func checkSite(space *symbols.Space, golang *Programs, d *fetch.Def, w symbols.Site) error {
	a := &Assessor{Function: decoded, Golang: golang}
	if _, err := a.Definition(d, w); err != nil {
		return err
	}
	_, err := d.Compile(&Env{Space: space, Site: w})
	if space.PID() == 0 && errors.Is(err, symbols.ErrNotMapped) {
		return nil // data of another file, which a process may well have
	}
	return err
}

// DefError says which definition could not be armed. Its cause is one of
// symbols', fetch's or this package's errors.
type DefError struct {
	Def *fetch.Def
	Err error
}

func (e *DefError) Error() string { return fmt.Sprintf("%s: %v", e.Def.Text, e.Err) }

// Unwrap returns the cause.
func (e *DefError) Unwrap() error { return e.Err }
