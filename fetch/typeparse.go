package fetch

import "strings"

// splitType finds where an argument's expression ends and its type starts: the
// first colon outside of parentheses and of an immediate string. In @MOD:SYM
// the first colon belongs to the name, unless a type follows it.
func splitType(s string) (text, typ string) {
	from := 0
	if strings.HasPrefix(s, `\"`) {
		if i := strings.LastIndexByte(s, '"'); i > 1 {
			from = i
		}
	}
	first, second := colons(s, from)
	at := first
	if len(s) > 1 && s[0] == '@' && isAlpha(s[1]) && first >= 0 && !isTypeName(s[first+1:]) {
		at = second
	}
	if at < 0 {
		return s, ""
	}
	return s[:at], s[at+1:]
}

// colons finds the first two colons that are outside of parentheses and not
// one of C++'s pairs.
func colons(s string, from int) (first, second int) {
	first, second = -1, -1
	open := 0
	for i := from; i < len(s); i++ {
		switch s[i] {
		case '(':
			open++
		case ')':
			open--
		case ':':
			if open > 0 {
				continue
			}
			if i+2 < len(s) && s[i+1] == ':' && isAlpha(s[i+2]) && i > 0 && (isAlpha(s[0]) || s[0] == '@') {
				i++
				continue
			}
			if first < 0 {
				first = i
				continue
			}
			return first, i
		}
	}
	if first < 0 && open > 0 {
		// Parentheses that never close hide no type: the kernel's first colon.
		first = strings.IndexByte(s, ':')
	}
	return first, second
}

// isTypeName reports whether s, without its array part, is a type.
func isTypeName(s string) bool {
	s, _, _ = strings.Cut(s, "[")
	if _, ok := namedType(s); ok {
		return true
	}
	return len(s) > 1 && s[0] == 'b' && isDigit(s[1]) && strings.Contains(s, "/")
}

// parseType parses TYPE[N]. A Type of Size 0 means that the name is unknown;
// a bitfield whose numbers are wrong has BitWidth 0: both are reported later,
// in the kernel's order.
func parseType(l *line, s string, col int) (Type, *SyntaxError) {
	count := uint8(0)
	if i := strings.IndexByte(s, '['); i >= 0 {
		inside := s[i+1:]
		end := strings.IndexByte(inside, ']')
		switch {
		case end < 0:
			return Type{}, l.err(ArrayNoClose, col+len(s), "")
		case end+1 < len(inside):
			return Type{}, l.err(BadArraySuffix, col+i+1+end+1, "")
		}
		v, ok := parseUint(inside[:end])
		switch {
		case !ok || v == 0 || v > 1<<32-1:
			return Type{}, l.err(BadArrayNum, col+i+1, "")
		case v > MaxArray:
			return Type{}, l.err(ArrayTooBig, col+i+1, "")
		}
		count = uint8(v)
		s = s[:i]
	}
	var t Type
	if strings.HasPrefix(s, "b") {
		t = parseBitfield(s)
	} else {
		t, _ = namedType(s)
	}
	t.Count = count
	return t, nil
}

// parseBitfield parses bWIDTH@OFFSET/CONTAINER.
func parseBitfield(s string) Type {
	_, container, _ := strings.Cut(s, "/")
	t := Type{Base: Unsigned}
	bits, ok := parseUint(container)
	if !ok || bits != 8 && bits != 16 && bits != 32 && bits != 64 {
		return Type{}
	}
	t.Size = uint8(bits / 8)
	head, _, _ := strings.Cut(s[1:], "/")
	width, off, _ := strings.Cut(head, "@")
	w, ok := parseUint(width)
	o, ok2 := parseUint(off)
	if ok && ok2 && w > 0 && w <= bits && o <= bits-w {
		t.BitWidth, t.BitOff = uint8(w), uint8(o)
	}
	return t
}
