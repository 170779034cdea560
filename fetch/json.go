package fetch

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// maxExact is the largest integer that every JSON reader keeps exact (2^53,
// RFC 8259 section 6).
const maxExact = 1 << 53

// AppendJSON appends a value as JSON. Integers are numbers, beyond 2^53 in
// either direction strings of decimal digits, whatever base their type prints
// in; floats are numbers in the shortest form, NaN and infinities the strings
// "NaN", "+Inf", "-Inf"; char, text and symbols are strings; arrays are
// arrays; what could not be read is null.
func AppendJSON(dst []byte, t Type, v Value, sym Symbolizer) []byte {
	if v.Fault {
		return append(dst, "null"...)
	}
	if t.Layout != nil {
		if out, done := t.appendLayoutJSON(dst, v, sym); done {
			return out
		}
	}
	if t.Count != 0 {
		elem := t.Elem()
		dst = append(dst, '[')
		for i := range v.Elems {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = AppendJSON(dst, elem, v.Elems[i], sym)
		}
		return append(dst, ']')
	}
	switch t.Base {
	case Signed:
		return appendSigned(dst, int64(v.Int))
	case Char:
		return AppendJSONString(dst, t.character(v.Int))
	case Float:
		if t.Size == 4 {
			return appendFloat(dst, float64(math.Float32frombits(uint32(v.Int))), 32)
		}
		return appendFloat(dst, math.Float64frombits(v.Int), 64)
	case SymbolName:
		// Demangled names have no character that JSON escapes, except a quote
		// in odd ones, so the string is made in place and redone if need be.
		from := len(dst)
		dst = AppendSymbol(append(dst, '"'), v.Int, sym)
		for _, c := range dst[from+1:] {
			if c < 0x20 || c >= 0x80 || c == '"' || c == '\\' {
				text := string(dst[from+1:])
				return AppendJSONString(dst[:from], []byte(text))
			}
		}
		return append(dst, '"')
	case String, UString, SymbolText, Path, FilePath:
		switch {
		case v.Address && v.Int == 0:
			return append(dst, "null"...)
		case !v.Address:
			return AppendJSONString(dst, v.Bytes)
		}
	}
	if v.Int > maxExact {
		dst = append(dst, '"')
		dst = strconv.AppendUint(dst, v.Int, 10)
		return append(dst, '"')
	}
	return strconv.AppendUint(dst, v.Int, 10)
}

func appendSigned(dst []byte, v int64) []byte {
	if v > maxExact || v < -maxExact {
		dst = append(dst, '"')
		dst = strconv.AppendInt(dst, v, 10)
		return append(dst, '"')
	}
	return strconv.AppendInt(dst, v, 10)
}

func appendFloat(dst []byte, f float64, bits int) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		dst = append(dst, '"')
		dst = strconv.AppendFloat(dst, f, 'g', -1, bits)
		return append(dst, '"')
	}
	return strconv.AppendFloat(dst, f, 'g', -1, bits)
}

// AppendJSONString appends s as a JSON string. Bytes that are not UTF-8 become
// U+FFFD, one for each (RFC 8259 section 8.1 allows nothing else).
func AppendJSONString(dst, s []byte) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < 0x7f && c != '"' && c != '\\' {
			i++
			continue
		}
		if c >= 0x80 {
			if r, n := utf8.DecodeRune(s[i:]); r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
		}
		dst = append(dst, s[from:i]...)
		dst = appendEscape(dst, c)
		i++
		from = i
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch {
	case c >= 0x80:
		return append(dst, "\uFFFD"...)
	case c == '"' || c == '\\':
		return append(dst, '\\', c)
	case c == '\n':
		return append(dst, `\n`...)
	case c == '\t':
		return append(dst, `\t`...)
	case c == '\r':
		return append(dst, `\r`...)
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}
