package fetch

import (
	"strings"

	"kprobe/symbols"
)

// sourceSuffixes end the names of source files; they tell FILE.c:LINE from
// FUNC:LINE and SYM@FILE.c from SYM@VERSION.
const sourceSuffixes = " c cc cpp cxx c++ C h hh hpp hxx inc inl go rs s S asm m mm d f f90 f95 zig nim swift ml adb ads pas cu y l "

// IsSource reports whether a name is that of a source file, by its suffix: FILE
// in FILE.c:LINE and SYM@FILE.c.
func IsSource(name string) bool { return isSource(name) }

func isSource(name string) bool {
	i := strings.LastIndexByte(name, '.')
	return i > 0 && i+1 < len(name) && strings.Contains(sourceSuffixes, " "+name[i+1:]+" ")
}

// placeParser parses one place word.
type placeParser struct {
	l *line
	w word
}

func (p *placeParser) err(code Code, at int) (symbols.Place, *SyntaxError) {
	return symbols.Place{}, p.l.err(code, p.w.col+at, "")
}

// parse takes the word apart. Columns inside the word are those of the
// kernel's trace_kprobe and trace_uprobe parsers.
func (p *placeParser) parse() (symbols.Place, *SyntaxError) {
	s, from := p.w.text, 0
	if s[0] == '"' {
		if n := quoteEnd(s[1:]); n >= 0 {
			s, from = s[1:1+n]+s[n+2:], 1
		}
	}
	if quoteEnd(s) >= 0 || strings.ContainsFunc(s, neverInPlace) {
		return p.err(BadProbeAddr, 0)
	}
	if bare, isReturn := strings.CutSuffix(s, "%return"); bare != "" {
		if out, ok := cutUSDT(bare); ok {
			out.Return = isReturn
			return out, nil
		}
	}
	if path, tail, ok := offsetForm(s); ok {
		return p.offset(path, tail, from+len(path)+1)
	}
	var out symbols.Place
	if i := suffixAt(s); i >= 0 {
		if s[i:] != "%return" {
			return p.err(BadAddrSuffix, from+i)
		}
		out.Return = true
		s = s[:i]
		if j := suffixAt(s); j >= 0 {
			return p.err(BadAddrSuffix, from+j)
		}
	}
	if !p.fill(&out, s) {
		return p.err(BadProbeAddr, 0)
	}
	return out, nil
}

// neverInPlace reports what no name and no sane path holds: control characters.
func neverInPlace(r rune) bool { return r < 0x20 || r == 0x7f }

// suffixAt finds the % of a suffix, which is not one of C++'s operator% or of
// the escapes in Go's import paths (%2e).
func suffixAt(s string) int {
	i := strings.LastIndexByte(s, '%')
	if i < 0 || s[i:] == "%return" {
		return i
	}
	if strings.HasSuffix(s[:i], "operator") {
		return -1
	}
	if strings.Contains(s[:i], "/") && i+3 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) && isDigit(s[i+1]) {
		return -1
	}
	return i
}

func isHex(c byte) bool { return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }

// offsetForm recognises PATH:OFFSET: a slash before the last colon and a
// digit after it. A source file's line and a Go function's are not that.
func offsetForm(s string) (path, tail string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 1 || i+1 == len(s) || !isDigit(s[i+1]) || !strings.Contains(s[:i], "/") {
		return "", "", false
	}
	path, tail = s[:i], s[i+1:]
	line := strings.TrimSuffix(tail, "%return")
	if isSource(path) && isLines(line) || isDecimal(line) && (isSource(path) || strings.Contains(path, "(*") || moduleEnd(path) >= 0) {
		return "", "", false
	}
	return path, tail, true
}

// offset parses OFFSET[%return][(REFCTR)]; at is its column in the word.
func (p *placeParser) offset(path, s string, at int) (symbols.Place, *SyntaxError) {
	out := symbols.Place{Kind: symbols.PlaceOffset, Module: path}
	if i := strings.IndexByte(s, '('); i >= 0 {
		end := strings.IndexByte(s[i:], ')')
		if end < 0 {
			return p.err(RefCntOpenBrace, at+len(s))
		}
		end += i
		if end+1 < len(s) {
			return p.err(BadRefCntSuffix, at+end+1)
		}
		v, ok := parseUint(s[i+1 : end])
		if !ok {
			return p.err(BadRefCnt, at+i+1)
		}
		out.RefCtr = symbols.Off(v)
		s = s[:i]
	}
	if i := strings.IndexByte(s, '%'); i >= 0 {
		if s[i:] != "%return" {
			return p.err(BadAddrSuffix, at+i)
		}
		out.Return = true
		s = s[:i]
	}
	v, ok := parseUint(s)
	if !ok {
		return p.err(BadUprobeOffs, at)
	}
	out.Value = v
	return out, nil
}

// moduleEnd finds the first colon that is not one of C++'s pairs, or inside of a
// name: f[abi:cxx11], {lambda(auto:1)#1}, {shim:vtable#0}.
func moduleEnd(s string) int {
	open := 0 // braces and parentheses
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '{', '(':
			open++
		case '}', ')':
			open--
		}
		if s[i] != ':' {
			continue
		}
		if i+1 < len(s) && s[i+1] == ':' {
			i++
			continue
		}
		if open > 0 || strings.HasSuffix(s[:i], "[abi") || goPrefixed(s, i) {
			continue
		}
		return i
	}
	return -1
}

// goPrefixed reports whether the colon at s[i] is one of the names that Go's
// linker makes: type:.eq.T, go:textfipsstart.
func goPrefixed(s string, i int) bool {
	return strings.HasSuffix(s[:i], "type") && strings.HasPrefix(s[i:], ":.") ||
		strings.HasSuffix(s[:i], "go") && (strings.HasPrefix(s[i:], ":textfips") || strings.HasPrefix(s[i:], ":buildid"))
}

// CutModule takes MOD: off a place or a pattern of names.
func CutModule(s string) (module, name string) {
	if i := moduleEnd(s); i >= 0 {
		return s[:i], s[i+1:]
	}
	return "", s
}

// quoteEnd is where the next quotation mark stands in s that is no part of a
// name, as those of C++'s operator"" _kb and of Rust's extern "C" fn() are; -1:
// nowhere.
func quoteEnd(s string) int {
	for i := 0; i < len(s); i++ {
		if s[i] != '"' {
			continue
		}
		n := inName(s, i)
		if n == 0 {
			return i
		}
		i += n - 1
	}
	return -1
}

// inName is the length of the quoted part of a name at s[i:], which starts with
// a quotation mark; 0 if that is none.
func inName(s string, i int) int {
	if strings.HasPrefix(s[i:], `""`) && strings.HasSuffix(s[:i], "operator") {
		return len(`""`)
	}
	if strings.HasSuffix(s[:i], "extern") || strings.HasSuffix(s[:i], "extern ") {
		for n := i + 1; n < len(s); n++ {
			if c := s[n]; c == '"' && n > i+1 {
				return n + 1 - i
			} else if !isAlpha(c) && !isDigit(c) && c != '-' {
				break
			}
		}
	}
	return 0
}

// fill parses every form but PATH:OFFSET.
func (p *placeParser) fill(out *symbols.Place, s string) bool {
	if s == "" {
		return false
	}
	if isDigit(s[0]) && !strings.Contains(s, ":") {
		v, ok := parseUint(s)
		out.Kind, out.Value = symbols.PlaceAddr, v
		return ok
	}
	i := moduleEnd(s)
	if i < 0 {
		return fillSymbol(out, s)
	}
	head, tail := s[:i], s[i+1:]
	if head == "" || tail == "" {
		return false
	}
	if isDecimal(tail) || isSource(head) && isLines(tail) {
		return fillLine(out, head, tail)
	}
	out.Module = head
	if j := moduleEnd(tail); j >= 0 {
		number := tail[j+1:]
		return (isDecimal(number) || isLines(number)) && j > 0 && fillLine(out, tail[:j], number)
	}
	if isDigit(tail[0]) {
		v, ok := parseUint(tail)
		out.Kind, out.Value = symbols.PlaceVaddr, v
		return ok
	}
	return fillSymbol(out, tail)
}

func fillLine(out *symbols.Place, name, number string) bool {
	out.Kind = symbols.PlaceLine
	if isSource(name) {
		out.File = name
	} else {
		out.Symbol = name
	}
	if !isDecimal(number) {
		out.Lines = number
		return true
	}
	v, ok := parseInt(decimal(number))
	if !ok || v > 1<<30 {
		return false
	}
	out.Line = int(v)
	return out.File == "" || v > 0
}

// isLines recognises a shell pattern over line numbers.
func isLines(s string) bool {
	return strings.ContainsAny(s, "*?[") && strings.Trim(s, "0123456789*?[]-!^") == ""
}

// fillSymbol parses SYM[@FILE.c][+offs].
func fillSymbol(out *symbols.Place, s string) bool {
	name := s
	if i := strings.LastIndexAny(s, "+-"); i > 0 && i+1 < len(s) && isDigit(s[i+1]) && !strings.Contains(s[i:], "]") {
		v, ok := parseInt(s[i+1:])
		if !ok || s[i] == '-' {
			return false
		}
		name, out.Offset = s[:i], v
	}
	if i := strings.LastIndexByte(name, '@'); i > 0 && isSource(name[i+1:]) {
		name, out.File = name[:i], name[i+1:]
	}
	out.Symbol = name
	return name != "" && !hasSign(name)
}

// hasSign reports whether a + or - stands where no name has one: outside of
// C++'s operators and arrows, of brackets and of parameters.
func hasSign(s string) bool {
	s = strings.TrimPrefix(s, "non-virtual thunk to ")
	if strings.Contains(s, "operator") {
		return false
	}
	open := 0
	for i := range len(s) {
		switch s[i] {
		case '[', '(', '<', '{':
			open++
		case ']', ')', '>', '}':
			open--
		case '+', '-':
			if strings.HasPrefix(s[i:], "-fm") || strings.HasPrefix(s[i:], "-range") {
				continue // Go's method values and bodies of range loops
			}
			if open <= 0 && (i+1 == len(s) || s[i+1] != '>') && !strings.Contains(s[:i], "/") {
				return true
			}
		}
	}
	return false
}
