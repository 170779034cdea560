package cli

import (
	"slices"

	"github.com/spf13/cobra"

	"kprobe/cmd/kprobe/kept"
)

// getenv reads the environment.
func (d *Deps) getenv(name string) string {
	if d.Getenv == nil {
		return ""
	}
	return d.Getenv(name)
}

// kept gives the file of kept definitions.
func (d *Deps) kept() (*kept.File, error) {
	path, err := kept.Path(d.getenv)
	if err != nil {
		return nil, err
	}
	return &kept.File{Path: path}, nil
}

// patterns checks words that are patterns for events.
func patterns(words []string) ([]kept.Pattern, error) {
	var out []kept.Pattern
	for _, word := range words {
		p := kept.Pattern(word)
		if err := p.Check(); err != nil {
			return nil, misuse("%v", err)
		}
		out = append(out, p)
	}
	return out, nil
}

// anyOf gives a function that reports whether one of the patterns matches.
func anyOf(ps []kept.Pattern) func(group, event string) bool {
	return func(group, event string) bool {
		return slices.ContainsFunc(ps, func(p kept.Pattern) bool { return p.Match(group, event) })
	}
}

// completeEvents offers the names of kept events.
func completeEvents(d *Deps) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		const directive = cobra.ShellCompDirectiveNoFileComp
		file, err := d.kept()
		if err != nil {
			return nil, directive
		}
		l, err := file.Read()
		if err != nil {
			return nil, directive
		}
		var out []string
		for _, def := range l.Defs() {
			for _, name := range []string{def.Event, kept.Name(def)} {
				if !slices.Contains(out, name) {
					out = append(out, name)
				}
			}
		}
		return out, directive
	}
}
