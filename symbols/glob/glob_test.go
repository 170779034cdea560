package glob

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	tests := []struct {
		pattern, name string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "anything at all", true}, {"a*", "abc", true}, {"a*", "ba", false},
		{"*a", "banana", true}, {"*a*n*", "banana", true}, {"a*b*c", "aXbYc", true}, {"a*b*c", "aXcYb", false},
		{"?", "", false}, {"?", "x", true}, {"a?c", "abc", true}, {"a?c", "ac", false},
		{"[abc]", "b", true}, {"[abc]", "d", false}, {"[a-c]x", "bx", true}, {"[!a-c]", "b", false}, {"[!a-c]", "z", true}, {"[^a]", "b", true},
		{"[]]", "]", true}, {"[a", "[a", true}, {"x[", "x[", true}, {"[a-]", "-", true}, {`\*`, "*", true}, {`\*`, "x", false}, {`a\`, `a\`, true},
		{"str[cl]*", "strcpy", true}, {"str[cl]*", "strlen", true}, {"str[cl]*", "strdup", false},
		{"a/b*", "a/b/c", true}, {"**a**", "a", true}, {"operator[]", "operator[]", true},
		{strings.Repeat("*a", 30) + "b", strings.Repeat("a", 200), false},
	}
	for _, tt := range tests {
		if got := Match(tt.pattern, tt.name, "!^"); got != tt.want {
			t.Errorf("%q matches %q: %v, want %v", tt.pattern, tt.name, got, tt.want)
		}
	}
}

func TestMatchAsKernel(t *testing.T) {
	for _, c := range []struct {
		pat, s string
		want   bool
	}{
		{"", "", true}, {"", "a", false}, {"a", "a", true}, {"a", "ab", false}, {"*", "", true}, {"*", "abc", true},
		{"a*c", "abbc", true}, {"a*c", "abcb", false}, {"*b*", "abc", true}, {"a?c", "abc", true}, {"a?c", "ac", false},
		{"[abc]x", "bx", true}, {"[!abc]x", "bx", false}, {"[!abc]x", "dx", true}, {"[a-c]", "b", true}, {"[a-c]", "d", false},
		{"[^a]", "^", true}, {"[^a]", "b", false}, {"[]]", "]", true}, {"[a-]", "-", true}, {"[", "[", true}, {"[a", "[a", true}, {"\\*", "*", true}, {"\\*", "a", false},
		{"a\\", "a\\", true}, {"**a**", "bab", true}, {"*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
	} {
		if got := Match(c.pat, []byte(c.s), "!"); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.pat, c.s, got)
		}
	}
}

// FuzzMatch compares patterns of *, ? and plain characters with regular
// expressions, and sets with path.Match.
func FuzzMatch(f *testing.F) {
	f.Add("str*", "strlen")
	f.Add("a?[b-d]*", "axc")
	f.Add("[!x]y", "zy")
	f.Add("a**b?", "aXbc")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 64 || len(name) > 256 {
			return
		}
		got := Match(pattern, name, "!^")
		if !strings.ContainsAny(pattern, `[\`) {
			var b strings.Builder
			for i := range len(pattern) {
				switch c := pattern[i]; c {
				case '*':
					b.WriteString(`[\x00-\xff]*`)
				case '?':
					b.WriteString(`[\x00-\xff]`)
				default:
					b.WriteString(regexp.QuoteMeta(latin(string([]byte{c}))))
				}
			}
			want := regexp.MustCompile(`\A(?s:` + b.String() + `)\z`).MatchString(latin(name))
			if got != want {
				t.Errorf("%q matches %q: %v, a regular expression says %v", pattern, name, got, want)
			}
			return
		}
		// path.Match differs by what it does not let * match, by bad patterns,
		// by ^ alone for negation, and by characters of several bytes.
		if strings.ContainsAny(pattern, `\!`) || strings.Contains(pattern, "[]") || strings.Contains(pattern, "[^]") || strings.Contains(name, "/") ||
			!ascii(pattern) || !ascii(name) {
			return
		}
		if want, err := path.Match(pattern, name); err == nil && want != got && !strings.Contains(pattern, "--") && !strings.Contains(pattern, "-") {
			t.Errorf("%q matches %q: %v, path.Match says %v", pattern, name, got, want)
		}
	})
}

// latin makes each byte a character.
func latin(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteRune(rune(s[i]))
	}
	return b.String()
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
