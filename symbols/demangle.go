package symbols

import (
	"slices"
	"strconv"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// Demangled returns the readable form of a C++ or Rust name, with parameters: "ns::f(int)",
// "core::fmt::Write::write_str". It returns other names unchanged.
func (s Symbol) Demangled() string { return demangleName(s.Name) }

func demangleName(name string) string {
	if !isMangled(name) {
		return name
	}
	stub := strings.TrimSuffix(name, "@plt")
	out := demangle.Filter(stub)
	if len(out) > maxDemangled {
		return name
	}
	return out + name[len(stub):]
}

// ParameterCount returns how many parameters a C++ function has by its mangled name, not
// counting this. ok is false if the name doesn't tell.
func ParameterCount(name string) (n int, ok bool) {
	if !strings.HasPrefix(name, "_Z") {
		return 0, false
	}
	base, _ := cutClone(name)
	ast, err := demangle.ToAST(base)
	if err != nil {
		return 0, false
	}
	typed, ok := ast.(*demangle.Typed)
	if !ok {
		return 0, false
	}
	of := typed.Type
	if m, ok := of.(*demangle.MethodWithQualifiers); ok {
		of = m.Method
	}
	fn, ok := of.(*demangle.FunctionType)
	if !ok {
		return 0, false
	}
	for _, a := range fn.Args {
		switch a := a.(type) {
		case *demangle.ExprList: // of a parameter pack
			n += len(a.Exprs)
			continue
		case *demangle.PackExpansion:
			return 0, false
		case *demangle.BuiltinType:
			if a.Name == "void" && len(fn.Args) == 1 || a.Name == "..." {
				continue
			}
		}
		n++
	}
	return n, true
}

// maxDemangled bounds the length in bytes of a readable name: templates can
// blow a short mangled name up a thousandfold.
const maxDemangled = 4096

// isMangled reports whether a name may be one of Itanium C++ or of Rust.
func isMangled(name string) bool {
	return strings.HasPrefix(name, "_Z") || strings.HasPrefix(name, "_R") || strings.HasPrefix(name, "___Z") || strings.HasPrefix(name, "__Z")
}

// nameForms returns the readable forms by which a mangled name is found, without blanks. The first is the whole
// form. The others lack parameters, or parameters and template arguments; and each form is there without
// ABI tags, too. All keep the suffix of a clone (".cold"). It returns nil if the name can't be demangled.
func nameForms(name string) []string {
	if !isMangled(name) {
		return nil
	}
	base, suffix := cutClone(name)
	suffix, _, _ = strings.Cut(suffix, ".llvm.") // the suffix of a local name that was made global, not of a clone
	limit := demangle.MaxLength(12)
	full, err := demangle.ToString(base, limit)
	if err != nil {
		return nil
	}
	full = squeeze(full)
	var forms []string
	add := func(s string) {
		for _, f := range forms {
			if f == s+suffix {
				return
			}
		}
		forms = append(forms, s+suffix)
	}
	add(full)
	if readable := squeeze(demangleName(name)); readable != full { // "f(int) [clone .cold]"
		forms = append(forms, readable)
	}
	if strings.Contains(full, "std::") { // abbreviations such as std::string, written out
		if verbose, err := demangle.ToString(base, demangle.Verbose, limit); err == nil {
			add(squeeze(verbose))
		}
	}
	if hash := rustHash(base); hash != "" {
		if bare, ok := strings.CutSuffix(full, "::"+hash); ok {
			add(bare)
		} else {
			add(full + "::" + hash)
		}
	}
	if isRust(base) {
		add(withoutTurbofish(full))
	}
	for _, options := range [...][]demangle.Option{
		{demangle.NoParams, demangle.NoEnclosingParams, limit},
		{demangle.NoParams, demangle.NoEnclosingParams, demangle.NoTemplateParams, limit},
	} {
		bare, err := demangle.ToString(base, options...)
		if err != nil {
			continue
		}
		bare = squeeze(bare)
		if i := strings.Index(full, bare); i > 0 { // the return type of a template
			add(full[i:])
		}
		add(bare)
	}
	for _, f := range forms[:len(forms):len(forms)] {
		if strings.Contains(f, "[abi:") {
			add(strings.TrimSuffix(withoutTags(f), suffix))
		}
	}
	return forms
}

// bareName returns a mangled name's readable form without parameters, template arguments and blanks.
func bareName(name string) (string, bool) {
	base, suffix := cutClone(name)
	bare, err := demangle.ToString(base, demangle.NoParams, demangle.NoEnclosingParams, demangle.NoTemplateParams, demangle.MaxLength(9))
	if err != nil {
		return "", false
	}
	if hash := rustHash(base); hash != "" {
		bare = strings.TrimSuffix(bare, "::"+hash)
	}
	return squeeze(bare) + suffix, true
}

// cutClone splits a mangled name from the suffix of a clone. Rust's legacy
// names have dots of their own.
func cutClone(name string) (base, suffix string) {
	if rustHash(name) != "" {
		return name, ""
	}
	if i := strings.LastIndex(name, "E."); i > 0 && rustHash(name[:i+1]) != "" {
		return name[:i+1], name[i+1:]
	}
	if i := strings.IndexByte(name, '.'); i > 0 {
		return name[:i], name[i:]
	}
	return name, ""
}

// rustHash returns the hash by which the legacy mangling of Rust distinguishes instances of a function, "h" and 16
// digits; "" if there is none.
func rustHash(name string) string {
	const tail = len("17h") + 16 + len("E")
	if !strings.HasPrefix(name, "_ZN") || len(name) < tail || name[len(name)-1] != 'E' {
		return ""
	}
	at := len(name) - tail
	if name[at:at+3] != "17h" {
		return ""
	}
	return name[at+2 : len(name)-1]
}

// squeeze removes the blanks from a name: "f(int, char const *)" and "f(int,char const*)" are the same function.
func squeeze(s string) string {
	if !strings.ContainsAny(s, " \t") {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '\t' {
			return -1
		}
		return r
	}, s)
}

// withoutTags removes ABI tags ("[abi:cxx11]").
func withoutTags(s string) string {
	for {
		i := strings.Index(s, "[abi:")
		if i < 0 {
			return s
		}
		n := strings.IndexByte(s[i:], ']')
		if n < 0 {
			return s
		}
		s = s[:i] + s[i+n+1:]
	}
}

// literalWords returns the identifiers of a readable name or pattern that a matching mangled name must contain, the
// longest first. It omits words that mangling abbreviates. It also omits everything in angle brackets,
// because words there may have been joined when blanks were removed ("<strascore::fmt::Debug>").
func literalWords(s string) []string {
	var out []string
	open := 0
	for i := 0; i < len(s); {
		if n := operatorSign(s, i); n > 0 {
			i += n
			continue
		}
		switch {
		case s[i] == '<':
			open++
		case s[i] == '>' && open > 0:
			open--
		}
		if open > 0 || !isWord(s[i]) {
			i++
			continue
		}
		j := i
		for j < len(s) && isWord(s[j]) {
			j++
		}
		if w := s[i:j]; !abbreviated(w) && (w[0] < '0' || w[0] > '9') {
			out = append(out, w)
		}
		i = j
	}
	slices.SortStableFunc(out, func(x, y string) int { return len(y) - len(x) })
	return out
}

// operatorSign returns the length of a C++ operator at s[i:], with its keyword, if its angle brackets are not those
// of template arguments; else 0.
func operatorSign(s string, i int) int {
	rest, ok := strings.CutPrefix(s[i:], "operator")
	if !ok || i > 0 && isWord(s[i-1]) {
		return 0
	}
	signs := len(rest) - len(strings.TrimLeft(rest, "<=>-"))
	return len("operator") + min(signs, 3)
}

// mangledWords are the literal words of a readable name as mangled names have
// them: each with its length before it, where nothing in the name may stand in
// the middle of an identifier of Rust's or behind a clone's dot.
// Parameters are not looked at: they may be written without blanks
// ("f(charconst*)"), as definitions want it.
func mangledWords(name string) []string {
	words := literalWords(withoutParams(name))
	if strings.ContainsAny(name, "<{$.") {
		return words
	}
	for i, w := range words {
		if w[0] != '_' {
			words[i] = strconv.Itoa(len(w)) + w
		}
	}
	return words
}

// withoutLength is a word of mangledWords without its length.
func withoutLength(w string) string { return strings.TrimLeft(w, "0123456789") }

// withoutParams returns a readable name without its parameters and what follows them.
func withoutParams(name string) string {
	for at := 0; ; {
		i := strings.IndexByte(name[at:], '(')
		if i < 0 {
			return name
		}
		i += at
		if i > 0 && !strings.HasSuffix(name[:i], "operator") && !strings.HasPrefix(name[i:], "(anonymous") && name[i-1] != '.' {
			return name[:i]
		}
		at = i + 1
	}
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// abbreviated reports whether the Itanium C++ ABI (5.1.5, 5.1.10) has an abbreviation for the word.
func abbreviated(w string) bool {
	switch w {
	case "std", "allocator", "basic_string", "string", "istream", "ostream", "iostream",
		"basic_istream", "basic_ostream", "basic_iostream", "char_traits",
		"operator", "new", "delete", "void", "bool", "char", "short", "int", "long", "unsigned", "signed",
		"float", "double", "wchar_t", "char8_t", "char16_t", "char32_t", "__int128", "auto", "decltype",
		"const", "volatile", "restrict", "anonymous", "namespace", "anonymousnamespace", "abi", "transaction", "as", "dyn", "impl", "mut", "lambda", "vtable", "typeinfo",
		"i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32", "u64", "u128", "usize", "f16", "f32", "f64", "f128", "str", "closure", "shim",
		"for", "to", "thunk", "virtual", "non", "guard", "variable", "clone", "co_await":
		return true
	}
	return strings.HasPrefix(w, "nullptr") || w == "true" || w == "false" || strings.HasPrefix(w, "operator")
}
