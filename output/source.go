package output

import (
	"strconv"
	"strings"

	"kprobe/fetch/vars"
	"kprobe/internal/quote"
	"kprobe/symbols"
)

// Variables are what a definition can fetch by name at one place.
type Variables struct {
	Place  string // as a definition takes it
	Module string
	Addr   symbols.Addr
	Source string // FILE:LINE, "" where unknown
	List   []vars.Description
}

// VariablesText appends the variables of a place: a line with the place, and
// one for each with its type, its name, and where it is or why it can't be had.
func VariablesText(dst []byte, v *Variables) []byte {
	dst = quote.AppendPlain(dst, v.Place)
	if v.Module != "" {
		dst = append(quote.AppendPlain(append(dst, " ("...), v.Module), ')')
	}
	dst = appendHex(append(dst, " at "...), uint64(v.Addr))
	if v.Source != "" {
		dst = quote.AppendPlain(append(dst, ", "...), v.Source)
	}
	dst = append(dst, ":\n"...)
	if len(v.List) == 0 {
		return append(dst, "  no variables\n"...)
	}
	t := &Table{Columns: []Column{{"", Left}, {"TYPE", Left}, {"NAME", Left}, {"WHERE", Left}}}
	for i := range v.List {
		d := &v.List[i]
		where := d.At
		if d.Where != "" {
			where = d.Where
		}
		t.Rows = append(t.Rows, []string{"", d.Type, d.Name, where})
	}
	return t.appendColumns(dst)
}

// AppendVariablesJSON appends one object for each variable of a place: "where"
// is there when it can be had, "why" when it can't.
func AppendVariablesJSON(dst []byte, v *Variables) []byte {
	for i := range v.List {
		d := &v.List[i]
		dst = quote.AppendJSON(append(dst, `{"place":`...), v.Place)
		dst = appendHex(append(dst, `,"addr":"`...), uint64(v.Addr))
		dst = append(dst, '"')
		if v.Source != "" {
			dst = quote.AppendJSON(append(dst, `,"line":`...), v.Source)
		}
		dst = quote.AppendJSON(append(dst, `,"name":`...), d.Name)
		dst = quote.AppendJSON(append(dst, `,"type":`...), d.Type)
		kind := "local"
		switch {
		case d.Param:
			kind = "parameter"
		case strings.HasPrefix(d.Name, "$"):
			kind = "result"
		}
		dst = quote.AppendJSON(append(dst, `,"kind":`...), kind)
		if d.Where != "" {
			dst = quote.AppendJSON(append(dst, `,"why":`...), d.Where)
		} else {
			dst = quote.AppendJSON(append(dst, `,"where":`...), d.At)
		}
		dst = append(dst, '}', '\n')
	}
	return dst
}

// SourceLines is a piece of a source file with the lines that can be probed.
type SourceLines struct {
	Name string // what is before the colon of a place: FUNC or FILE
	File string // as the compiler had it
	// Origin is the line that a place counts from: the function's own, or 0 for
	// lines of a file.
	Origin int
	From   int // the first of Text
	Text   []string
	Code   []symbols.LineCode // by line
	// NoText says that the file could not be read: Text is nil, and only lines
	// with code are printed.
	NoText bool
}

// SourceLinesText appends the lines as perf probe -L prints them: those that
// can be probed with their number, which stands behind the colon in a place.
func SourceLinesText(dst []byte, s *SourceLines) []byte {
	dst = append(quote.AppendPlain(append(dst, '<'), s.Name), '@')
	dst = strconv.AppendInt(append(quote.AppendPlain(dst, s.File), ':'), int64(s.From-s.Origin), 10)
	dst = append(dst, ">\n"...)
	s.each(func(line int, text string, code *symbols.LineCode) {
		number := ""
		if code != nil {
			number = strconv.Itoa(line - s.Origin)
		}
		if s.NoText && code != nil {
			text = code.Addr.String()
		}
		if number != "" || text != "" {
			for n := len(number); n < 7; n++ {
				dst = append(dst, ' ')
			}
		}
		dst = append(dst, number...)
		if text != "" {
			dst = appendSource(append(dst, "  "...), text)
		}
		dst = append(dst, '\n')
	})
	return dst
}

// AppendSourceLinesJSON appends one object for each line: "place" is what a
// definition takes, and is there where "probe" is true.
func AppendSourceLinesJSON(dst []byte, s *SourceLines) []byte {
	s.each(func(line int, text string, code *symbols.LineCode) {
		dst = quote.AppendJSON(append(dst, `{"file":`...), s.File)
		dst = appendPadded(append(dst, `,"line":`...), uint64(line), 1, ' ')
		dst = appendBool(append(dst, `,"probe":`...), code != nil)
		if code != nil {
			dst = quote.AppendJSON(append(dst, `,"place":`...), s.Name+":"+strconv.Itoa(line-s.Origin))
			dst = appendHex(append(dst, `,"addr":"`...), uint64(code.Addr))
			dst = append(dst, '"')
		}
		if !s.NoText {
			dst = quote.AppendJSON(append(dst, `,"text":`...), text)
		}
		dst = append(dst, '}', '\n')
	})
	return dst
}

// each goes through the lines: of a file that can't be read through those with
// code.
func (s *SourceLines) each(do func(line int, text string, code *symbols.LineCode)) {
	if s.NoText {
		for i := range s.Code {
			do(s.Code[i].Line, "", &s.Code[i])
		}
		return
	}
	next := 0
	for i, text := range s.Text {
		line := s.From + i
		for next < len(s.Code) && s.Code[next].Line < line {
			next++
		}
		var code *symbols.LineCode
		if next < len(s.Code) && s.Code[next].Line == line {
			code = &s.Code[next]
		}
		do(line, strings.TrimRight(text, "\r"), code)
	}
}

// appendSource appends a line of a source file; its tabs stay.
func appendSource(dst []byte, text string) []byte {
	for i, part := range strings.Split(text, "\t") {
		if i > 0 {
			dst = append(dst, '\t')
		}
		dst = quote.AppendPlain(dst, part)
	}
	return dst
}
