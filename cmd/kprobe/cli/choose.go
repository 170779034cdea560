package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kprobe/cmd/kprobe/kept"
	"kprobe/fetch"
)

// bootVariable is the environment variable that corresponds to the kernel's kprobe_event=
// parameter: definitions for a command from its first instruction on.
const bootVariable = "KPROBE_EVENT"

// choose gives the definitions of a session: those of files and of the command
// line, those of KPROBE_EVENT for a command, and the kept events that the
// command line names. Where there are none of these, it is all kept events
// that are enabled and whose files the target maps.
//
// Call release when the session has ended: until then the kept events that it
// uses are busy.
func (o *sessionOptions) choose(ctx context.Context, d *Deps, m *messages) (defs []*fetch.Def, release func(), err error) {
	release = func() {}
	src := o.defs
	var names []kept.Pattern
	if src.args, names, err = d.events(o.defs.args); err != nil {
		return nil, release, err
	}
	if boot := d.getenv(bootVariable); boot != "" && len(o.command) > 0 {
		src.args = append(slices.Clone(src.args), boot)
	}
	given, err := src.parse(d.In)
	if err != nil {
		return nil, release, err
	}
	all := len(given) == 0 && len(names) == 0 && len(src.files) == 0
	if len(names) > 0 || all {
		release, err = o.chooseKept(ctx, d, m, names, &given)
		if err != nil {
			return nil, release, err
		}
	}
	var set fetch.Set
	if err := set.AddAll(given); err != nil {
		return nil, release, err
	}
	if len(given) == 0 {
		return nil, release, fmt.Errorf("no definition in %s", o.defs.given())
	}
	if set.Len() == 0 {
		return nil, release, errors.New("the definitions cancel each other: nothing is left to probe")
	}
	return set.All(), release, nil
}

// events takes the words that name kept events out of a command line. A word
// with a slash and no colon can be nothing else; others are names where an
// event matches, else places.
func (d *Deps) events(words []string) (rest []string, names []kept.Pattern, err error) {
	var l *kept.List
	for _, word := range words {
		p := kept.Pattern(word)
		if strings.ContainsAny(word, ": \t+@%(") || p.Check() != nil {
			rest = append(rest, word)
			continue
		}
		if l == nil {
			if l, err = d.keptList(); err != nil {
				return nil, nil, err
			}
		}
		switch {
		case len(l.Match(p.Match)) > 0:
			names = append(names, p)
		case strings.Contains(word, "/"):
			return nil, nil, fmt.Errorf("no kept event matches %s", word)
		default:
			rest = append(rest, word)
		}
	}
	return rest, names, nil
}

// keptList reads what is kept; without a place for it, nothing is.
func (d *Deps) keptList() (*kept.List, error) {
	file, err := d.kept()
	if errors.Is(err, kept.ErrNoHome) {
		return &kept.List{}, nil
	}
	if err != nil {
		return nil, err
	}
	return file.Read()
}

// chooseKept adds the kept definitions that match to defs; no names are all.
func (o *sessionOptions) chooseKept(ctx context.Context, d *Deps, m *messages, names []kept.Pattern, defs *[]*fetch.Def) (release func(), err error) {
	file, err := d.kept()
	if errors.Is(err, kept.ErrNoHome) {
		return func() {}, errNoDefinitions
	}
	if err != nil {
		return func() {}, err
	}
	return file.Use(ctx, func(l *kept.List) ([]string, error) {
		var events []string
		if len(names) == 0 {
			names = []kept.Pattern{"*"}
			if len(l.Defs()) == 0 {
				return nil, errNoDefinitions
			}
		}
		for _, p := range names {
			chosen, err := o.matching(d, m, l, p)
			if err != nil {
				return nil, err
			}
			for _, def := range chosen {
				if o.waits == nil {
					o.waits = map[*fetch.Def]bool{}
				}
				o.waits[def] = true
				if !slices.Contains(*defs, def) {
					*defs = append(*defs, def)
					events = append(events, kept.Name(def))
				}
			}
		}
		return events, nil
	})
}

// errNoDefinitions is misuse: nothing was named and nothing is kept.
var errNoDefinitions = misuse("name a place, such as libc:openat, or a file of definitions with -F; no definitions are kept")

// matching gives the kept definitions of the events that match and are
// enabled. Of those that a glob matches it takes the ones whose file the
// target maps or may load later; an event that is named must be there.
func (o *sessionOptions) matching(d *Deps, m *messages, l *kept.List, p kept.Pattern) ([]*fetch.Def, error) {
	var out []*fetch.Def
	var disabled string
	for _, def := range l.Defs() {
		switch {
		case !p.Match(def.Group, def.Event):
		case l.Disabled(kept.Name(def)):
			disabled = kept.Name(def)
		default:
			out = append(out, def)
		}
	}
	if len(out) == 0 && disabled != "" {
		return nil, fmt.Errorf("%s is disabled: kprobe enable %s", disabled, disabled)
	}
	if !p.Glob() {
		return out, nil
	}
	maps := o.mapped()
	there := slices.DeleteFunc(slices.Clone(out), func(def *fetch.Def) bool {
		ok := maps(def.Place.Module) || o.pending || loadable(def.Place.Module)
		if !ok && o.verbose {
			m.say("%s is left out: the target does not map %s", kept.Name(def), def.Place.Module)
		}
		return !ok
	})
	if len(out) > 0 && len(there) == 0 {
		return nil, fmt.Errorf("none of the %d kept definitions is about a file that the target maps; kprobe list shows them", len(out))
	}
	return there, nil
}
