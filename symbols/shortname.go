package symbols

import (
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// Short is the readable name without what tells overloads and instances of a
// template apart: C++'s parameters, template arguments and result types, Rust's
// generic arguments ("ns::f", "std::vector::push_back",
// "core::ptr::drop_in_place"). The suffix of a clone stays (".cold"). A place
// takes it for every function that has it.
func (s Symbol) Short() string {
	if !isMangled(s.Name) {
		return s.Name
	}
	name, stub := s.Name, ""
	if bare, ok := strings.CutSuffix(name, "@plt"); ok {
		name, stub = bare, "@plt"
	}
	short, ok := shortForm(name)
	if !ok || len(short) > maxDemangled {
		return s.Demangled()
	}
	return short + stub
}

// shortForm is Short of a mangled name without a version or @plt.
func shortForm(name string) (string, bool) {
	base, suffix := cutClone(name)
	suffix, _, _ = strings.Cut(suffix, ".llvm.")
	limit := demangle.MaxLength(12)
	if isRust(base) {
		full, err := demangle.ToString(base, limit)
		return withoutTurbofish(full) + suffix, err == nil
	}
	bare, err := demangle.ToString(base, demangle.NoParams, demangle.NoEnclosingParams, demangle.NoTemplateParams, limit)
	return bare + suffix, err == nil && bare != ""
}

// isRust reports a name of one of Rust's two manglings.
func isRust(base string) bool { return strings.HasPrefix(base, "_R") || rustHash(base) != "" }

// withoutTurbofish cuts Rust's "::<...>", which names the types that a function
// was instantiated for, where it is no part of another type.
func withoutTurbofish(s string) string {
	for at, open := 0, 0; at < len(s); at++ {
		switch s[at] {
		case '<':
			if open == 0 && strings.HasSuffix(s[:at], "::") {
				if n := closingAngle(strings.ReplaceAll(s[at:], "->", "-.")); n >= 0 {
					s = s[:at-2] + s[at+n+1:]
					at -= 3
					continue
				}
			}
			open++
		case '>':
			if at == 0 || s[at-1] != '-' {
				open--
			}
		}
	}
	return s
}
