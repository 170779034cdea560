package kept

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"kprobe/fetch"
)

// List is what the file holds: definitions in order, with the comments between
// them. The zero List is empty. It is not safe for concurrent use.
type List struct {
	lines    []line
	disabled map[string]bool // by Name
}

// line is a definition, or what the user wrote between two.
type line struct {
	def  *fetch.Def
	text string // where def is nil: a comment or a blank line
}

// Name is how an event is called: GRP/EVENT.
func Name(d *fetch.Def) string { return d.Group + "/" + d.Event }

// maxLine bounds a line: 128 arguments at their longest and a filter.
const maxLine = 1 << 17

// Parse reads a list. name is used in errors only: *fetch.FileError around a
// *fetch.SyntaxError or what r failed with.
func Parse(r io.Reader, name string) (*List, error) {
	l := &List{disabled: map[string]bool{}}
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 4096), maxLine)
	n, events := 0, map[string][]*fetch.Def{}
	for sc.Scan() {
		n++
		text := strings.TrimSpace(sc.Text())
		if event, ok := disabledEvent(text); ok {
			l.disabled[event] = true
			continue
		}
		if text == "" || text[0] == '#' {
			l.lines = append(l.lines, line{text: text})
			continue
		}
		defs, err := fetch.ParseFile(strings.NewReader(text), name)
		for i := 0; err == nil && i < len(defs); i++ {
			err = l.take(defs[i], events)
		}
		if err != nil {
			var at *fetch.FileError
			if errors.As(err, &at) {
				err = at.Err
			}
			return nil, &fetch.FileError{Name: name, Line: n, Err: err}
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fetch.ReadError(name, n+1, err)
	}
	l.prune()
	return l, nil
}

// Bytes is the file that Parse takes back.
func (l *List) Bytes() []byte {
	var b bytes.Buffer
	marked := map[string]bool{}
	for _, ln := range l.lines {
		if ln.def == nil {
			b.WriteString(ln.text + "\n")
			continue
		}
		if name := Name(ln.def); l.disabled[name] && !marked[name] {
			marked[name] = true
			b.WriteString(disabledMark + name + "\n")
		}
		b.WriteString(ln.def.String() + "\n")
	}
	return b.Bytes()
}

// Defs lists the definitions. The slice is the caller's.
func (l *List) Defs() []*fetch.Def {
	var out []*fetch.Def
	for _, ln := range l.lines {
		if ln.def != nil {
			out = append(out, ln.def)
		}
	}
	return out
}

// Places counts the places of each event, by its Name.
func (l *List) Places() map[string]int {
	out := map[string]int{}
	for _, d := range l.Defs() {
		out[Name(d)]++
	}
	return out
}

// Disabled reports whether an event, by its Name, is disabled.
func (l *List) Disabled(name string) bool { return l.disabled[name] }

// Add takes in definitions and carries out deletions, in their order: all of
// them or none. The rules are those of fetch.Set, its errors *fetch.SyntaxError.
func (l *List) Add(defs []*fetch.Def) error {
	was := slices.Clone(l.lines)
	kept := func(d *fetch.Def) bool { return slices.ContainsFunc(was, func(ln line) bool { return ln.def == d }) }
	events := l.events()
	for _, d := range defs {
		if err := l.take(d, events); err != nil {
			l.lines = was
			var taken *TakenError
			if errors.As(err, &taken) && !kept(taken.Kept) {
				return taken.Err // both are of what is added
			}
			return err
		}
	}
	l.prune()
	return nil
}

// TakenError says that a definition can't be kept beside one of the same event.
type TakenError struct {
	Kept *fetch.Def
	Err  error // the language's: *fetch.SyntaxError of the one that was given
}

func (e *TakenError) Error() string { return e.Err.Error() }

// Unwrap gives Err.
func (e *TakenError) Unwrap() error { return e.Err }

// events gives the definitions of each event by its Name.
func (l *List) events() map[string][]*fetch.Def {
	out := map[string][]*fetch.Def{}
	for _, ln := range l.lines {
		if ln.def != nil {
			out[Name(ln.def)] = append(out[Name(ln.def)], ln.def)
		}
	}
	return out
}

// take takes in one definition; events are those that are there.
func (l *List) take(d *fetch.Def, events map[string][]*fetch.Def) error {
	if d.Kind != fetch.Delete {
		name := Name(d)
		for _, o := range events[name] {
			if err := o.SameShape(d); err != nil {
				return &TakenError{Kept: o, Err: err}
			}
		}
		l.lines = append(l.lines, line{def: d})
		events[name] = append(events[name], d)
		return nil
	}
	before := len(l.lines)
	l.keep(func(o *fetch.Def) bool { return !deletes(d, o) })
	if len(l.lines) == before {
		var empty fetch.Set
		return empty.Add(d) // its error is the language's
	}
	clear(events)
	for name, defs := range l.events() {
		events[name] = defs
	}
	return nil
}

// Has reports whether a deletion names something that is kept.
func (l *List) Has(deletion *fetch.Def) bool {
	return slices.ContainsFunc(l.lines, func(ln line) bool { return ln.def != nil && deletes(deletion, ln.def) })
}

// Holds reports whether the very same definition is kept.
func (l *List) Holds(d *fetch.Def) bool {
	return slices.ContainsFunc(l.lines, func(ln line) bool { return ln.def != nil && Same(ln.def, d) })
}

// Same reports whether two definitions are the same, of one event.
func Same(a, b *fetch.Def) bool {
	var differs *fetch.SyntaxError
	return Name(a) == Name(b) && errors.As(a.SameShape(b), &differs) && differs.Code == fetch.SameProbe
}

// deletes reports whether a deletion is about a kept definition. Where it names
// a place without a file, the file that was kept with the place doesn't matter.
func deletes(d, kept *fetch.Def) bool {
	if d.HasPlace && d.Place.Module == "" {
		plain := *kept
		plain.Place.Module = ""
		kept = &plain
	}
	return d.Deletes(kept)
}

// Keep drops the events that do not match, and all comments.
func (l *List) Keep(match func(group, event string) bool) {
	l.lines = slices.DeleteFunc(l.lines, func(ln line) bool {
		return ln.def == nil || !match(ln.def.Group, ln.def.Event)
	})
	l.prune()
}

// keep drops the definitions that the function says no to.
func (l *List) keep(keep func(*fetch.Def) bool) {
	l.lines = slices.DeleteFunc(slices.Clone(l.lines), func(ln line) bool {
		return ln.def != nil && !keep(ln.def)
	})
}

// Delete drops the events that match and returns their names.
func (l *List) Delete(match func(group, event string) bool) []string {
	names := l.Match(match)
	l.keep(func(d *fetch.Def) bool { return !slices.Contains(names, Name(d)) })
	l.prune()
	return names
}

// Enable enables or disables the events that match and returns their names.
func (l *List) Enable(match func(group, event string) bool, on bool) []string {
	names := l.Match(match)
	for _, name := range names {
		if on {
			delete(l.disabled, name)
		} else {
			l.disable(name)
		}
	}
	return names
}

func (l *List) disable(name string) {
	if l.disabled == nil {
		l.disabled = map[string]bool{}
	}
	l.disabled[name] = true
}

// Match lists the names of the events that match, each once, in order.
func (l *List) Match(match func(group, event string) bool) []string {
	var names []string
	seen := map[string]bool{}
	for _, d := range l.Defs() {
		if name := Name(d); !seen[name] && match(d.Group, d.Event) {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// prune forgets the state of events that are gone.
func (l *List) prune() {
	there := map[string]bool{}
	for _, ln := range l.lines {
		if ln.def != nil {
			there[Name(ln.def)] = true
		}
	}
	for name := range l.disabled {
		if !there[name] {
			delete(l.disabled, name)
		}
	}
}
