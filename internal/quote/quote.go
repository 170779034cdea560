// Package quote writes text that programs chose (names, strings, paths) to terminals, lines and
// JSON. It is the only place that decides which characters are printed as they are.
//
// The rule: what strconv.IsGraphic calls graphic is printed: letters, marks, digits,
// punctuation, symbols and blanks of any script. Everything else is escaped: controls (C0, DEL
// and C1, which terminals obey), formats (which change the direction of text, or are
// invisible), line and paragraph separators, unassigned characters, and bytes that aren't
// UTF-8.
package quote

import (
	"strconv"
	"unicode/utf8"
)

// HexDigits are the digits of escapes.
const HexDigits = "0123456789abcdef"

// AppendPlain appends text that stands without quotes. What isn't shown is \n,
// \t, \r, or \xHH for each byte. A backslash stays as it is, because names and
// paths are taken as input again.
func AppendPlain[S string | []byte](dst []byte, s S) []byte { return appendEscaped(dst, s, 0) }

// Plain is AppendPlain of a string.
func Plain(s string) string {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] >= 0x7f {
			return string(AppendPlain(nil, s))
		}
	}
	return s
}

// AppendText appends text in double quotes, so that its bytes can be told again:
// as AppendPlain, and \" and \\. strconv.Unquote reads it back.
func AppendText[S string | []byte](dst []byte, s S) []byte { return appendQuoted(dst, s, '"') }

// AppendChar is AppendText in single quotes, with \'.
func AppendChar[S string | []byte](dst []byte, s S) []byte { return appendQuoted(dst, s, '\'') }

func appendQuoted[S string | []byte](dst []byte, s S, mark byte) []byte {
	return append(appendEscaped(append(dst, mark), s, mark), mark)
}

// appendEscaped appends s without what isn't shown; with a mark that ends it, also
// without that and backslashes.
func appendEscaped[S string | []byte](dst []byte, s S, mark byte) []byte {
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < 0x7f && (mark == 0 || c != mark && c != '\\') {
			i++
			continue
		}
		_, n, ok := shown(s, i)
		if ok && c >= utf8.RuneSelf {
			i += n
			continue
		}
		dst = append(dst, s[from:i]...)
		for _, c := range []byte(s[i : i+n]) {
			switch {
			case c == '\n':
				dst = append(dst, `\n`...)
			case c == '\t':
				dst = append(dst, `\t`...)
			case c == '\r':
				dst = append(dst, `\r`...)
			case c >= 0x20 && c < 0x7f:
				dst = append(dst, '\\', c)
			default:
				dst = append(dst, '\\', 'x', HexDigits[c>>4], HexDigits[c&15])
			}
		}
		i += n
		from = i
	}
	return append(dst, s[from:]...)
}

// AppendJSON appends text as a JSON string (RFC 8259, section 7). What isn't
// shown is \uHHHH, in two halves beyond U+FFFF; a byte that is no UTF-8 becomes
// U+FFFD, because section 8.1 allows nothing else. <, > and & are left alone.
func AppendJSON[S string | []byte](dst []byte, s S) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < 0x7f && c != '"' && c != '\\' {
			i++
			continue
		}
		r, n, ok := shown(s, i)
		if ok && c >= utf8.RuneSelf {
			i += n
			continue
		}
		dst = append(dst, s[from:i]...)
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		case r > 0xffff:
			r -= 0x10000
			dst = appendUnit(appendUnit(dst, 0xd800+r>>10), 0xdc00+r&0x3ff)
		default:
			dst = appendUnit(dst, r)
		}
		i += n
		from = i
	}
	return append(append(dst, s[from:]...), '"')
}

func appendUnit(dst []byte, r rune) []byte {
	return append(dst, '\\', 'u', HexDigits[r>>12&15], HexDigits[r>>8&15], HexDigits[r>>4&15], HexDigits[r&15])
}

// shown gives the character at i, how many bytes it has, and whether it goes out
// as it is.
func shown[S string | []byte](s S, i int) (r rune, n int, ok bool) {
	if s[i] < utf8.RuneSelf {
		return rune(s[i]), 1, s[i] >= 0x20 && s[i] < 0x7f
	}
	r, n = utf8.DecodeRuneInString(string(s[i:min(len(s), i+utf8.UTFMax)]))
	return r, n, (r != utf8.RuneError || n > 1) && strconv.IsGraphic(r)
}

// AppendHex appends bytes as a JSON string of two digits each.
func AppendHex(dst, b []byte) []byte {
	dst = append(dst, '"')
	for _, c := range b {
		dst = append(dst, HexDigits[c>>4], HexDigits[c&15])
	}
	return append(dst, '"')
}
