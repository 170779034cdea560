package kept

import (
	"fmt"
	"path"
	"strings"
)

// Pattern is a shell pattern for events: EVENT, in any group, or GRP/EVENT.
type Pattern string

// Check says what is wrong with the pattern, nil when nothing is.
func (p Pattern) Check() error {
	for part := range strings.SplitSeq(string(p), "/") {
		if _, err := path.Match(part, ""); err != nil || part == "" {
			return fmt.Errorf("%q is not a pattern for events: EVENT or GRP/EVENT, with *, ? and […]", string(p))
		}
	}
	if strings.Count(string(p), "/") > 1 {
		return fmt.Errorf("%q is not a pattern for events: it has more than one slash", string(p))
	}
	return nil
}

// Match reports whether an event's name matches. A pattern that Check refuses
// matches nothing.
func (p Pattern) Match(group, event string) bool {
	g, e, both := strings.Cut(string(p), "/")
	if !both {
		g, e = "*", string(p)
	}
	inGroup, gerr := path.Match(g, group)
	isEvent, eerr := path.Match(e, event)
	return gerr == nil && eerr == nil && inGroup && isEvent
}

// Glob reports whether the pattern may match more than one event.
func (p Pattern) Glob() bool { return strings.ContainsAny(string(p), `*?[\`) }
