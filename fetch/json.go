package fetch

import (
	"math"
	"strconv"

	"kprobe/internal/quote"
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
	if t.Base == Container && t.Layout != nil {
		return t.Layout.Content.appendJSON(dst, &v, sym)
	}
	if t.Layout != nil {
		if out, done := t.appendLayoutJSON(dst, v, sym); done {
			return out
		}
	}
	if t.Base == ID {
		return append(appendID(append(dst, '"'), &v), '"')
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
		return quote.AppendJSON(dst, t.character(v.Int))
	case Float:
		if t.Size == 4 {
			return appendFloat(dst, float64(math.Float32frombits(uint32(v.Int))), 32)
		}
		return appendFloat(dst, math.Float64frombits(v.Int), 64)
	case SymbolName:
		// Most names have no character that JSON escapes, so the string is made in
		// place and redone if need be.
		from := len(dst)
		dst = AppendSymbol(append(dst, '"'), v.Int, sym)
		for _, c := range dst[from+1:] {
			if c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
				text := string(dst[from+1:])
				return quote.AppendJSON(dst[:from], text)
			}
		}
		return append(dst, '"')
	case String, UString, SymbolText, Path, FilePath, Bytes:
		switch {
		case v.Address && v.Int == 0:
			return append(dst, "null"...)
		case !v.Address:
			return quote.AppendJSON(dst, v.Bytes)
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
