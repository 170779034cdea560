package vars

import (
	"strings"

	"kprobe/fetch"
)

// owning reports a type of Rust's of which a value has memory of its own, that a
// function to which it is given may have freed when it returns. What is borrowed
// (&str, &[T], and an Option of one) lives longer.
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
