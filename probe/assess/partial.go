package assess

import (
	"errors"
	"fmt"
	"strings"

	"kprobe/fetch"
	"kprobe/symbols"
)

// A definition of several places may ask for a variable that some of them don't
// have: a glob over functions, a line that stands in several. As perf probe does
// (skip_empty_arg in tools/perf/util/probe-finder.c), they are left out and said;
// if no place has it, that is the error.

// lacking reports an error of a place that hasn't what a definition asks for.
func lacking(err error) bool {
	var e *fetch.SyntaxError
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case fetch.NoBTFArg, fetch.NoBTFField, fetch.NoPtrStrct, fetch.NoSupBTFArg, fetch.NoBTFEntry, fetch.NoRetval:
		return true
	}
	return false
}

// Partly collects the places that lack something.
type Partly struct {
	names []string
	First error
}

// Skip takes note of a place and reports whether it can be left out.
func (p *Partly) Skip(w symbols.Site, err error) bool {
	if !lacking(err) {
		return false
	}
	p.names = append(p.names, w.Name())
	if p.First == nil {
		p.First = err
	}
	return true
}

// saidNames is how many places a warning names.
const saidNames = 8

// Warning says which of all places are left out.
func (p *Partly) Warning(d *fetch.Def, all int) string {
	names, more := p.names, ""
	if n := len(names) - saidNames; n > 0 {
		names, more = names[:saidNames], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%s: %d of %d places are not probed, because they don't have what it fetches: %s%s (%v)", d.Place, len(p.names), all, strings.Join(names, ", "), more, p.First)
}
