package vars

import (
	"strings"

	"kprobe/fetch"
)

// owning reports whether a value of a Rust type has memory of its own. A function that is
// given such a value may have freed the memory by the time it returns. Borrowed values (&str,
// &[T], and an Option of one) live longer.
func owning(t fetch.Type) bool {
	l := t.Layout
	if l == nil {
		return false
	}
	borrowed := strings.HasPrefix(strings.TrimPrefix(l.Name, "Option<"), "&")
	switch {
	case t.Base == fetch.Container:
		return !borrowed && !l.Content.Flat()
	case t.Base == fetch.String:
		return !borrowed
	}
	for i := range l.Members {
		if owning(l.Members[i].Type) {
			return true
		}
	}
	return false
}
