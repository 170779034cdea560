package fetch

import (
	"strings"

	"kprobe/symbols"
)

// PlaceText writes a place without %return as a definition takes it back: as it
// is, or in double quotes where blanks would take it apart or it would be
// another word. ok is false where the language can't say it.
func PlaceText(p symbols.Place) (text string, ok bool) {
	place := p.String()
	if p.Kind == symbols.PlaceSymbol && p.Module == "" && p.File == "" && p.Offset == 0 && isPlain(place) {
		return place, true
	}
	for _, text := range [...]string{place, `"` + place + `"`} {
		if d, err := Parse(text); err == nil && d.HasPlace && d.Kind == Entry && d.Place == p && len(d.Args) == 0 && d.Filter == nil && d.Stack == 0 {
			return text, true
		}
	}
	return "", false
}

// isPlain reports a name that has nothing to look twice at.
func isPlain(s string) bool {
	if len(s) < 2 || s[0] >= '0' && s[0] <= '9' || isCommandWord(s) {
		return false
	}
	return strings.TrimLeft(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") == ""
}
