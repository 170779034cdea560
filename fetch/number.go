package fetch

import "strconv"

// parseUint parses an unsigned number by C's rules: 0x… is hexadecimal, 0…
// octal, anything else decimal. The whole of s must be the number.
func parseUint(s string) (uint64, bool) {
	base := 10
	switch {
	case len(s) > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X'):
		base, s = 16, s[2:]
	case len(s) > 1 && s[0] == '0':
		base, s = 8, s[1:]
	}
	// ParseUint takes signs and underscores only where base is 0.
	v, err := strconv.ParseUint(s, base, 64)
	return v, err == nil
}

// parseInt parses a signed number by C's rules; one sign may stand before it.
func parseInt(s string) (int64, bool) {
	neg := len(s) > 0 && s[0] == '-'
	if neg || len(s) > 0 && s[0] == '+' {
		s = s[1:]
	}
	v, ok := parseUint(s)
	switch {
	case !ok, neg && v > 1<<63, !neg && v > 1<<63-1:
		return 0, false
	case neg:
		return -int64(v), true
	}
	return int64(v), true
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// isWord reports what names consist of.
func isWord(c byte) bool { return isAlpha(c) || isDigit(c) }

func isAlpha(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' }

func isDecimal(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return s != ""
}

// isGoodName reports whether s follows the rules of C identifiers.
func isGoodName(s string) bool {
	for i := range len(s) {
		if !isAlpha(s[i]) && (i == 0 || !isDigit(s[i])) {
			return false
		}
	}
	return s != ""
}

// isGoodGroup reports whether s can be a group: a C identifier that may hold
// hyphens (is_good_system_name in kernel/trace/trace_probe.h).
func isGoodGroup(s string) bool {
	for i := range len(s) {
		if !isAlpha(s[i]) && (i == 0 || !isDigit(s[i]) && s[i] != '-') {
			return false
		}
	}
	return s != ""
}
