package output

import (
	"slices"
	"unicode/utf8"

	"kprobe/fetch"
	"kprobe/internal/quote"
	"kprobe/probe/results"
)

// maxExact is the largest integer up to which a JSON number that is read as a
// double is exact (RFC 8259, section 6). Larger ones are written as strings.
const maxExact = 1 << 53

// appendJSON appends the object of a hit. "ip" with "sym" and "off" is the
// probed address; return probes add "func", the function that returned, and
// "ret_ip" with "ret_sym" and "ret_off", where it returned to. Where no symbol
// covers an address, its name and offset are left out. A statically defined probe
// adds "probe", its name as %PROVIDER:NAME.
func (f *Formatter) appendJSON(dst []byte, h *results.Hit) []byte {
	dst = append(dst, `{"type":"hit","time":`...)
	dst = f.appendTime(dst, f.Clock.micros(h.Time, f.before))
	dst = append(dst, f.head...)
	dst = f.appendWhose(dst, h)
	dst = append(dst, `,"ip":"`...)
	dst = appendHex(dst, uint64(h.IP))
	dst = append(dst, '"')
	if name, off, _, ok := f.names.SymbolAt(h.IP); ok {
		dst = quote.AppendJSON(append(dst, `,"sym":`...), name)
		dst = appendPadded(append(dst, `,"off":`...), off, 1, ' ')
	}
	if name, ok := usdtName(h); ok {
		dst = quote.AppendJSON(append(dst, `,"probe":`...), name)
	}
	if h.Event.Return {
		dst = append(dst, `,"func":`...)
		dst = quote.AppendJSON(dst, h.Func)
		dst = append(dst, `,"ret_ip":"`...)
		dst = appendHex(dst, uint64(h.RetIP))
		dst = append(dst, '"')
		if name, off, _, ok := f.names.SymbolAt(h.RetIP); ok {
			dst = quote.AppendJSON(append(dst, `,"ret_sym":`...), name)
			dst = appendPadded(append(dst, `,"ret_off":`...), off, 1, ' ')
		}
	}
	dst = append(dst, `,"args":{`...)
	fields := h.Program.Fields()
	for i := range f.vals {
		if results.Hidden(fields[i].Name) {
			continue
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = quote.AppendJSON(dst, fields[i].Name)
		dst = append(dst, ':')
		dst = fetch.AppendJSON(dst, fields[i].Type, f.vals[i], &f.names)
		dst = appendHexTwin(dst, fields, i, &f.vals[i])
	}
	dst = append(dst, '}')
	dst = f.appendCut(dst, fields)
	if h.Stack != nil {
		dst = f.appendStackJSON(dst, h)
	}
	return append(dst, '}', '\n')
}

// appendCut appends "cut", the names of the texts of which there was more: the
// strings in "args" are the beginnings.
func (f *Formatter) appendCut(dst []byte, fields []fetch.Field) []byte {
	first := true
	for i := range f.vals {
		if !fields[i].Type.CutOf(&f.vals[i]) {
			continue
		}
		from := len(dst)
		if first {
			dst = append(dst, `,"cut":[`...)
		}
		if dst, first = fetch.AppendCut(dst, fields[i].Name, fields[i].Type, &f.vals[i], first); first {
			dst = dst[:from] // what was cut isn't printed
		}
	}
	if !first {
		dst = append(dst, ']')
	}
	return dst
}

// appendHexTwin appends "NAME_hex" for text that is not UTF-8 and so was
// changed on its way into a JSON string: the bytes as they were, in
// hexadecimal; for an array of texts all its elements. Bytes always have it. A definition
// may call another value so: then it is "NAME_hex#2".
func appendHexTwin(dst []byte, fields []fetch.Field, i int, v *fetch.Value) []byte {
	field := &fields[i]
	if !field.Type.IsText() || v.Fault || v.Address || field.Type.Base == fetch.Container || field.Type.Base != fetch.Bytes && validText(v) {
		return dst
	}
	taken := func(name string) bool {
		return slices.ContainsFunc(fields, func(f fetch.Field) bool { return f.Name == name })
	}
	dst = append(quote.AppendJSON(append(dst, ','), quote.Own(field.Name+"_hex", taken)), ':')
	if !field.Type.IsArray() {
		return quote.AppendHex(dst, v.Bytes)
	}
	dst = append(dst, '[')
	for i := range v.Elems {
		if i > 0 {
			dst = append(dst, ',')
		}
		if v.Elems[i].Fault {
			dst = append(dst, "null"...)
		} else {
			dst = quote.AppendHex(dst, v.Elems[i].Bytes)
		}
	}
	return append(dst, ']')
}

func validText(v *fetch.Value) bool {
	for i := range v.Elems {
		if !utf8.Valid(v.Elems[i].Bytes) {
			return false
		}
	}
	return utf8.Valid(v.Bytes)
}

// appendCount appends a counter: a number, or a string beyond 2^53.
func appendCount(dst []byte, v uint64) []byte {
	if v <= maxExact {
		return appendPadded(dst, v, 1, ' ')
	}
	dst = append(dst, '"')
	dst = appendPadded(dst, v, 1, ' ')
	return append(dst, '"')
}
