package report

import (
	"strconv"

	"kprobe/internal/quote"
	"kprobe/output/recording"
)

// AppendValue appends a value as a trace prints it.
func AppendValue(dst []byte, kind recording.Kind, v *recording.Value) []byte {
	switch v.State {
	case recording.Fault:
		return append(dst, "(fault)"...)
	case recording.Printed:
		return quote.AppendPlain(dst, string(v.Text))
	}
	switch kind {
	case recording.Unsigned:
		return strconv.AppendUint(dst, v.Int, 10)
	case recording.Signed:
		return strconv.AppendInt(dst, int64(v.Int), 10)
	case recording.Hex:
		return strconv.AppendUint(append(dst, "0x"...), v.Int, 16)
	case recording.Float:
		return strconv.AppendFloat(dst, v.Float, 'g', -1, 64)
	case recording.Shown:
		return quote.AppendPlain(dst, string(v.Text))
	}
	dst = strconv.AppendQuote(dst, string(v.Text))
	if v.State == recording.Cut {
		dst = append(dst, "..."...)
	}
	return dst
}

// AppendValues appends the values of a hit with their names, as those of a call.
func AppendValues(dst []byte, h *recording.Hit) []byte {
	for i, f := range h.Event.Fields {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = AppendValue(append(quote.AppendPlain(dst, f.Name), '='), f.Kind, &h.Values[i])
	}
	return dst
}
