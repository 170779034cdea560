package fetch

import (
	"fmt"
	"hash/fnv"
	"path"
	"strings"

	"kprobe/symbols"
)

// parseName parses what stands behind the colon of a definition's first word:
// [GRP/][EVENT], where a dot may stand for the slash. col is its column.
func parseName(l *line, s string, col int) (group, event string, e *SyntaxError) {
	sep := strings.IndexByte(s, '/')
	if sep < 0 {
		sep = strings.IndexByte(s, '.')
	}
	if sep >= 0 {
		group = s[:sep]
		switch {
		case sep == 0:
			return "", "", l.err(NoGroupName, col, "")
		case sep > MaxName:
			return "", "", l.err(GroupTooLong, col, "")
		case !isGoodGroup(group):
			return "", "", l.err(BadGroupName, col, "")
		}
		col += sep + 1
		s = s[sep+1:]
	}
	switch {
	case s == "" && sep >= 0:
		return group, "", nil
	case s == "":
		return "", "", l.err(NoEventName, col, "")
	case len(s) > MaxName:
		return "", "", l.err(EventTooLong, col, "")
	case !isGoodName(s):
		return "", "", l.err(BadEventName, col, "")
	}
	return group, s, nil
}

// generatedName makes the name of an event whose definition gives none, as
// the kernel does: p_SYM_OFFS, p_0xADDR, p_BASENAME_0xOFF.
func generatedName(kind Kind, p symbols.Place) string {
	var s string
	switch p.Kind {
	case symbols.PlaceAddr:
		s = fmt.Sprintf("%s_0x%x", kind, p.Value)
	case symbols.PlaceVaddr:
		s = fmt.Sprintf("%s_%s_0x%x", kind, p.Module, p.Value)
	case symbols.PlaceOffset:
		base := path.Base(p.Module)
		if i := strings.IndexAny(base, ".-_"); i >= 0 {
			base = base[:i]
		}
		// The kernel's letter is p, at returns too (trace_uprobe.c).
		s = fmt.Sprintf("p_%s_0x%x", base, p.Value)
	case symbols.PlaceLine:
		s = fmt.Sprintf("%s_%s", kind, p.String())
	case symbols.PlaceData:
		s = watchName(p)
	case symbols.PlaceUSDT:
		s = fmt.Sprintf("%s_%s_%s", kind, p.Provider, p.Symbol)
	case symbols.PlaceSymbol:
		q := p
		q.Offset, q.File = 0, ""
		s = fmt.Sprintf("%s_%s_%d", kind, q.String(), p.Offset)
	}
	return cutName(cleanName(s), s)
}

// cleanName makes every character that can't be in a name an underscore.
func cleanName(s string) string {
	b := []byte(s)
	for i, c := range b {
		if !isAlpha(c) && !isDigit(c) {
			b[i] = '_'
		}
	}
	return string(b)
}

// cutName shortens a name that is too long. A hash of the whole keeps the
// names of different places different, which the kernel's cut doesn't.
func cutName(s, whole string) string {
	if len(s) <= MaxName {
		return s
	}
	h := fnv.New32a()
	h.Write([]byte(whole))
	return fmt.Sprintf("%s_%08x", s[:MaxName-9], h.Sum32())
}
