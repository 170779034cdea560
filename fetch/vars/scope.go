// Package vars resolves the names in a definition by debug information: where a variable is at
// a probe's place, how it is read there, and how its value prints. A Scope is the part of a
// fetch.DebugEnv that does this.
//
// It compiles DWARF's location expressions to fetch chains. If a chain can't express one, the
// result is an error with the reason, and never another value.
package vars

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"strings"
	"sync"

	"kprobe/fetch"
	"kprobe/symbols"
	"kprobe/symbols/debuginfo"
)

// Scope is a place in a program whose variables can be resolved. It is safe for concurrent
// use. Its answers hold for a thread that is about to run the instruction at the place. For a
// return probe they hold at the function's entry.
type Scope struct {
	space *symbols.Space
	site  symbols.Site

	asked  sync.Once // guards merged
	merged error
}

// At makes the Scope of a site. It doesn't read anything yet.
func At(space *symbols.Space, site symbols.Site) *Scope { return &Scope{space: space, site: site} }

// Variable resolves a name with what surrounds it: NAME, then ->FIELD, .FIELD and [N] after
// it, and * and (TYPE) or (TYPE*) before it. $retval and $argN may stand in place of a name.
// Members of C++'s *this need no this->.
//
// Its errors wrap fetch.ErrNoDebugInfo or fetch.ErrNoValue, or are a *NotFoundError.
func (s *Scope) Variable(text string) (v fetch.Variable, err error) {
	err = s.read(func(f *frame) error {
		v, err = f.variable(text)
		return err
	})
	if n, is := resultNumber(text); is && errors.Is(err, fetch.ErrNoDebugInfo) {
		if w, ok, werr := s.strippedResult(n); ok {
			return w, werr
		}
	}
	return v, err
}

// Parameters lists the formal parameters.
func (s *Scope) Parameters() ([]fetch.Variable, error) {
	return s.Variables(fetch.WhichParams)
}

// Variables lists the variables that are visible at the place. A variable in several places,
// such as a Go slice in registers, is listed by its members. Parameters that can't be read are
// listed as fetch.GoneVariable, and so are locals that exist but can't be recorded. Locals
// without a value, and locals hidden by an inner block, are left out.
func (s *Scope) Variables(which fetch.Which) (out []fetch.Variable, err error) {
	if s.site.NamedAs().USDT != nil && which == fetch.WhichParams {
		return s.noted(), nil
	}
	err = s.read(func(f *frame) error {
		if f.merged != nil {
			return f.merged
		}
		for _, d := range f.visible(which) {
			v, err := f.declared(d)
			if errors.Is(err, errPieces) {
				var parts []fetch.Variable
				if parts, err = f.declaredParts(d); err == nil {
					out = append(out, parts...)
					continue
				}
			}
			switch {
			case err == nil:
				out = append(out, v)
			case errors.Is(err, fetch.ErrNoValue) && !errors.As(err, new(*unknownError)):
				if d.Tag() == dwarf.TagFormalParameter && !f.isResult(&d) {
					out = append(out, fetch.GoneVariable(f.sourceName(&d), fetch.OptimizedOut))
				}
			default:
				out = append(out, fetch.GoneVariable(f.sourceName(&d), fetch.NotRecorded))
			}
		}
		return nil
	})
	return out, err
}

// Argument returns the N-th formal parameter, counted from 1. For a statically defined probe
// it is the N-th argument of the probe's note. If a Go parameter has several words, the error
// is fetch.ErrInParts, and Variable returns it.
func (s *Scope) Argument(n int) (v fetch.Variable, err error) {
	if s.site.NamedAs().USDT != nil {
		return s.notedArgument(n)
	}
	err = s.read(func(f *frame) error {
		v, err = f.argument(n)
		return err
	})
	if errors.Is(err, fetch.ErrNoDebugInfo) {
		if w, ok, werr := s.stripped(n); ok {
			return w, werr
		}
	}
	return v, err
}

// Result returns the function's result, at its return.
func (s *Scope) Result() (v fetch.Variable, err error) {
	err = s.read(func(f *frame) error {
		v, err = f.variable("$retval")
		return err
	})
	if errors.Is(err, fetch.ErrNoDebugInfo) {
		if w, ok, werr := s.strippedResult(1); ok {
			return w, werr
		}
	}
	return v, err
}

// Function returns the name of the function whose variables are meant. At the place of an
// inlined function's instance, that is the inlined function.
func (s *Scope) Function() (name string, err error) {
	err = s.read(func(f *frame) error {
		name = nameOf(f.scopes[f.home], s.site.Name())
		return nil
	})
	return name, err
}

// Description describes one variable that is visible at a place.
type Description struct {
	Name  string
	Type  string // as the source writes it
	At    string // where it is, as fetch.Variable.Where says; "" when it can't be had
	Where string // "" when it can be had; else why not
	Param bool
}

// Describe lists the variables that are visible at the place, parameters first, including
// those that can't be read there. Variables that a definition can't name (Go's ~r0), and those
// that an inner block hides, are left out: Variable accepts every Name.
func (s *Scope) Describe() ([]Description, error) { return s.describe(false) }

// DescribeAtReturn is Describe for a return probe. It keeps only a limited number of bytes
// from the entry, so larger variables can't be read there.
func (s *Scope) DescribeAtReturn() ([]Description, error) { return s.describe(true) }

func (s *Scope) describe(atReturn bool) (out []Description, err error) {
	out = s.describeNoted()
	err = s.read(func(f *frame) error {
		f.atReturn = atReturn
		for _, d := range f.visible(fetch.WhichVars) {
			name := f.sourceName(&d)
			if !fetch.IsName(name) {
				continue
			}
			t, _ := f.sourceType(&d)
			v, err := f.declared(d)
			if errors.Is(err, errPieces) {
				if list, ok := f.describeParts(d); ok {
					out = append(out, list...)
					continue
				}
			}
			one := f.description(name, t, v, err)
			one.Param = d.Tag() == dwarf.TagFormalParameter && !f.isResult(&d)
			out = append(out, one)
		}
		return nil
	})
	if len(out) > 0 && errors.Is(err, fetch.ErrNoDebugInfo) {
		err = nil // a note describes its arguments without debug information
	}
	return out, err
}

// DescribeResults describes a Go function's named results, at its return.
func (s *Scope) DescribeResults() (out []Description) {
	_ = s.read(func(f *frame) error {
		if !f.isGoFunc() {
			return nil
		}
		for c := range f.goParameters() {
			if !f.isResult(&c) || !fetch.IsName(c.Name()) {
				continue
			}
			if r, err := f.loadResult(&c); err == nil {
				v, err := r.variable(c.Name())
				out = append(out, f.description(c.Name(), r.t, v, err))
			}
		}
		return nil
	})
	return out
}

// DescribeResult describes $retval at the function's return. ok is false if the function
// returns nothing, or if its result isn't known.
func (s *Scope) DescribeResult() (out Description, ok bool) {
	err := s.read(func(f *frame) error {
		const name = "$retval"
		r, err := f.result()
		if err != nil {
			return err
		}
		v, err := r.variable(name)
		out, ok = f.description(name, r.t, v, err), true
		return nil
	})
	return out, ok && err == nil
}

func (f *frame) description(name string, t ctype, v fetch.Variable, err error) Description {
	d := Description{Name: name, Type: t.String()}
	if err == nil && f.atReturn {
		var kept *fetch.SyntaxError
		if err = v.Kept(); errors.As(err, &kept) {
			err = errors.New(kept.Detail)
		}
	}
	if err != nil {
		d.Where = strings.TrimPrefix(err.Error(), name+": ")
	} else {
		d.At = v.Where()
	}
	return d
}

// read finds the debug information of the place.
func (s *Scope) read(do func(*frame) error) error {
	m := s.site.Module
	if m == nil {
		return fmt.Errorf("%s is in no file: %w", s.site.Name(), fetch.ErrNoDebugInfo)
	}
	err := m.File.ReadDebug(func(d *debuginfo.Data) error {
		f := &frame{scope: s, data: d, module: m, pc: uint64(s.site.Vaddr)}
		if err := f.find(); err != nil {
			return err
		}
		s.asked.Do(func() { s.merged = f.mergedWith() })
		f.merged = s.merged
		return do(f)
	})
	if errors.Is(err, symbols.ErrNoDebugInfo) && !errors.Is(err, fetch.ErrNoDebugInfo) {
		var other *symbols.OtherBuildError
		if errors.As(err, &other) {
			return fmt.Errorf("%s has %w: %s", m.File.Name, fetch.ErrNoDebugInfo, other)
		}
		err = fmt.Errorf("%s has %w", m.File.Name, fetch.ErrNoDebugInfo)
	}
	return err
}

// NotFoundError says that a place has no variable, or a type no member, of a name.
type NotFoundError struct {
	Name  string
	Where string   // the function or the type
	Have  []string // the names that exist
	Types bool     // Name is a type, and Where the file of the place
	// Global says that only variables outside of functions were searched.
	Global bool
	// Undefined says why a type that is only declared is not known.
	Undefined error
}

func (e *NotFoundError) Error() string {
	s := fmt.Sprintf("no %s in %s", e.Name, e.Where)
	if e.Types {
		return "no " + e.Name + " in the debug information of " + e.Where + ": only types of the probed file are known"
	}
	switch {
	case e.Undefined != nil:
		return fmt.Sprintf("%s, which is only declared here: %v", s, e.Undefined)
	case len(e.Have) > 0:
	case e.Global:
		return s + ": a function's own variables are known only at probes in it"
	case strings.HasPrefix(e.Name, "variable "):
		return s + ", which has none at this place"
	default:
		return s + ", which has none"
	}
	s += " (there are: "
	for i, h := range e.Have {
		if i == 20 {
			return s + ", ...)"
		}
		if i > 0 {
			s += ", "
		}
		s += h
	}
	return s + ")"
}
