package detour

import (
	"slices"

	"kprobe/fetch"
)

// UsesPID reports whether a program reads its process's number. Its detours contain this number.
func UsesPID(prog *fetch.Program) bool {
	of := func(c *fetch.Chain) bool {
		return c.Source == fetch.SourcePID || c.Source == fetch.SourceComputed && c.From == fetch.SourcePID
	}
	for q := range prog.Preds() {
		if q.Field == fetch.FieldPID {
			return true
		}
	}
	if slices.ContainsFunc(prog.Entry, func(c fetch.Capture) bool { return of(&c.Chain) }) {
		return true
	}
	return slices.ContainsFunc(prog.Args, func(a fetch.ArgProgram) bool {
		return of(&a.Chain) || a.Len != nil && of(a.Len) || slices.ContainsFunc(a.Parts, func(p fetch.Part) bool { return of(&p.Chain) })
	})
}
