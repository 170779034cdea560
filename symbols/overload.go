package symbols

import (
	"slices"
	"strings"
)

// Overloads
//
// A name with parameters means the function of those types and no other. Types
// are compared as types: const before or behind, unsigned for unsigned int,
// std::string for what it is short for, size_t for unsigned long.

// hasParams reports a readable name with a list of parameters.
func hasParams(name string) bool { return withoutParams(name) != name }

// signature is a readable name with its parameters in one form.
func signature(name string) string {
	base := withoutParams(name)
	rest := name[len(base):]
	end := closingParen(rest)
	if end < 0 {
		return squeeze(name)
	}
	var params []string
	for _, p := range splitTop(rest[1:end]) {
		if p = canonicalType(p); p != "" && p != "void" {
			params = append(params, p)
		}
	}
	return canonicalTemplates(squeeze(base)) + "(" + strings.Join(params, ",") + ")" + squeeze(withoutTags(rest[end+1:]))
}

// closingParen is where the parenthesis closes with which s begins; -1: nowhere.
func closingParen(s string) int {
	open := 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			open++
		case ')':
			if open--; open == 0 {
				return i
			}
		}
	}
	return -1
}

// splitTop splits at the commas outside of all brackets.
func splitTop(s string) []string {
	var out []string
	open, from := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '(', '<', '[', '{':
			open++
		case ')', '>', ']', '}':
			open--
		case ',':
			if open == 0 {
				out = append(out, s[from:i])
				from = i + 1
			}
		}
	}
	return append(out, s[from:])
}

// canonicalType writes a type in one form: the words of a number's type in one
// order, const behind what it is of, and not of a parameter itself.
func canonicalType(s string) string {
	s = strings.TrimSpace(s)
	base, rest := s, ""
	open := 0
cut:
	for i := range len(s) {
		switch s[i] {
		case '<':
			open++
		case '>':
			open--
		case '*', '&', '(', '[':
			if open == 0 {
				base, rest = s[:i], s[i:]
				break cut
			}
		}
	}
	isConst, isVolatile := false, false
	var words []string
	number := map[string]int{}
	for _, w := range fieldsOutside(base) {
		switch w {
		case "const":
			isConst = true
		case "volatile":
			isVolatile = true
		case "struct", "class", "enum", "union":
		case "unsigned", "signed", "long", "short", "int", "char", "double":
			number[w]++
		default:
			words = append(words, w)
		}
	}
	name := canonicalTemplates(strings.Join(words, ""))
	if len(number) > 0 {
		name = numberType(number) + name
	} else if full, ok := numberNames[strings.TrimPrefix(name, "std::")]; ok {
		name = full
	}
	rest = squeeze(rest)
	if isConst && rest != "" {
		name += " const"
	}
	if isVolatile && rest != "" {
		name += " volatile"
	}
	for _, ptr := range [...]string{"*const", "*restrict"} { // of the parameter itself
		if cut, ok := strings.CutSuffix(rest, ptr); ok {
			rest = cut + "*"
		}
	}
	return name + rest
}

// fieldsOutside splits at blanks outside of template arguments, of which the
// blanks are taken out.
func fieldsOutside(s string) []string {
	var out []string
	var word strings.Builder
	open := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == ' ' || c == '\t':
			if open == 0 && word.Len() > 0 {
				out = append(out, word.String())
				word.Reset()
			} else if open > 0 && i > 0 && isWord(s[i-1]) && i+1 < len(s) && isWord(s[i+1]) {
				word.WriteByte(' ')
			}
			continue
		case c == '<':
			open++
		case c == '>':
			open--
		}
		word.WriteByte(s[i])
		if s[i] == '>' && open == 0 && i+1 < len(s) && isWord(s[i+1]) {
			out = append(out, word.String())
			word.Reset()
		}
	}
	if word.Len() > 0 {
		out = append(out, word.String())
	}
	return out
}

// numberType is the type of the words of a number.
func numberType(w map[string]int) string {
	sign := ""
	if w["unsigned"] > 0 {
		sign = "unsigned "
	}
	switch {
	case w["char"] > 0 && w["signed"] > 0:
		return "signed char"
	case w["char"] > 0:
		return sign + "char"
	case w["double"] > 0 && w["long"] > 0:
		return "long double"
	case w["double"] > 0:
		return "double"
	case w["short"] > 0:
		return sign + "short"
	case w["long"] > 1:
		return sign + "long long"
	case w["long"] > 0:
		return sign + "long"
	}
	return sign + "int"
}

// numberNames are names of the C library for types of numbers on x86-64 Linux.
var numberNames = map[string]string{
	"size_t": "unsigned long", "ssize_t": "long", "ptrdiff_t": "long", "intptr_t": "long", "uintptr_t": "unsigned long",
	"int8_t": "signed char", "uint8_t": "unsigned char", "int16_t": "short", "uint16_t": "unsigned short",
	"int32_t": "int", "uint32_t": "unsigned int", "int64_t": "long", "uint64_t": "unsigned long",
}

// canonicalTemplates leaves out the inline namespaces of the standard libraries,
// and the arguments that the standard containers have by default.
func canonicalTemplates(s string) string {
	s = strings.NewReplacer("std::__cxx11::", "std::", "std::__1::", "std::").Replace(s)
	open := strings.IndexByte(s, '<')
	if open < 0 {
		return s
	}
	end := closingAngle(s[open:])
	if end < 0 {
		return s
	}
	end += open
	var args []string
	for _, a := range splitTop(s[open+1 : end]) {
		a = canonicalArgument(a)
		isDefault := slices.ContainsFunc(defaultArguments, func(p string) bool { return strings.HasPrefix(a, p) })
		if !isDefault || !strings.HasPrefix(s, "std::") {
			args = append(args, a)
		}
	}
	name, rest := s[:open], canonicalTemplates(s[end+1:])
	if name == "std::basic_string" && len(args) == 1 && args[0] == "char" {
		return "std::string" + rest
	}
	if name == "std::basic_string_view" && len(args) == 1 && args[0] == "char" {
		return "std::string_view" + rest
	}
	return name + "<" + strings.Join(args, ",") + ">" + rest
}

// canonicalArgument is canonicalType for template arguments, whose own const
// counts.
func canonicalArgument(s string) string {
	s = strings.TrimSpace(s)
	t := canonicalType(s)
	words := fieldsOutside(s)
	if !strings.ContainsAny(s, "*&(") && slices.Contains(words, "const") {
		t += " const"
	}
	return t
}

// defaultArguments begin template arguments that are there by default.
var defaultArguments = []string{"std::allocator<", "std::char_traits<", "std::less<", "std::default_delete<", "std::hash<", "std::equal_to<"}

// closingAngle is where the angle bracket closes with which s begins; -1: nowhere.
func closingAngle(s string) int {
	open := 0
	for i := range len(s) {
		switch s[i] {
		case '<':
			open++
		case '>':
			if open--; open == 0 {
				return i
			}
		}
	}
	return -1
}

// overloads finds the functions of a name without parameters, and of them those
// whose parameters are of the wanted types. Clones belong to their function, but
// parts of one that are not called do not.
func (f *File) overloads(name string) (same, all []Symbol) {
	want := signature(name)
	seen := map[string]bool{}
	for _, sym := range f.readableLike(withoutParams(name)) {
		base, suffix := cutClone(sym.Name)
		if !sym.Kind.Code() || seen[sym.Name] || strings.Contains(suffix, ".cold") || strings.Contains(suffix, ".part") {
			continue
		}
		seen[sym.Name] = true
		all = append(all, sym)
		if signature(demangleName(base)) == want {
			same = append(same, sym)
		}
	}
	whole := slices.DeleteFunc(slices.Clone(same), func(s Symbol) bool { _, suffix := cutClone(s.Name); return suffix != "" })
	if len(whole) > 0 {
		same = whole
	}
	return same, all
}

// readableLike finds mangled names by a readable form, whatever clone of a
// function they are of.
func (f *File) readableLike(name string) []Symbol {
	want := canonicalTemplates(squeeze(name))
	words := mangledWords(name)
	longest := ""
	if len(words) > 0 {
		longest = withoutLength(words[0])
	}
	var out []Symbol
	for _, t := range f.tables().list {
		hits := t.holding(longest)
		if len(hits) == 0 {
			continue
		}
		for i := range t.symbols {
			s := &t.symbols[i]
			if !hits.in(s.name) || !s.named() {
				continue
			}
			raw, _, _ := strings.Cut(t.name(s), "@")
			if !isMangled(raw) || !holdsAll(raw, words) {
				continue
			}
			base, _ := cutClone(raw)
			if slices.ContainsFunc(nameForms(base), func(form string) bool { return canonicalTemplates(form) == want }) {
				out = append(out, f.symbol(t, s))
			}
		}
	}
	return orderSymbols(out)
}
