// Package glob matches text against shell patterns, byte by byte. It is the one matcher for
// names of functions, for lines and for filters.
package glob

import "strings"

// Match reports whether the whole text matches a pattern. * matches any text, ? any character,
// [abc] and [a-z] one character of a set, \c the character c. One of the characters of not at a
// set's start negates the set: not is "!" as in the kernel's lib/glob.c, or "!^" as in shells. A [
// without its ] stands for itself. Characters are bytes. The time is at most proportional to the
// product of the lengths.
func Match[T string | []byte](pattern string, text T, not string) bool {
	p, n := 0, 0
	star, resume := -1, 0
	for n < len(text) {
		if p < len(pattern) && pattern[p] == '*' {
			star, resume = p, n
			if p++; p == len(pattern) {
				return true
			}
			continue
		}
		if p < len(pattern) {
			if next, ok := one(pattern, p, text[n], not); ok {
				p, n = next, n+1
				continue
			}
		}
		if star < 0 {
			return false
		}
		resume++
		p, n = star+1, resume
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// one matches one character with pattern[p:], which doesn't begin with a star. It returns
// where the rest of the pattern begins.
func one(pattern string, p int, c byte, not string) (next int, ok bool) {
	switch pattern[p] {
	case '?':
		return p + 1, true
	case '\\':
		if p+1 < len(pattern) {
			return p + 2, pattern[p+1] == c
		}
	case '[':
		if next, ok, closed := set(pattern, p+1, c, not); closed {
			return next, ok
		}
	}
	return p + 1, pattern[p] == c
}

func set(pattern string, p int, c byte, not string) (next int, ok, closed bool) {
	turned := p < len(pattern) && strings.IndexByte(not, pattern[p]) >= 0
	if turned {
		p++
	}
	in := false
	for first := true; p < len(pattern); first = false {
		if pattern[p] == ']' && !first {
			return p + 1, in != turned, true
		}
		lo := pattern[p]
		hi := lo
		if p+2 < len(pattern) && pattern[p+1] == '-' && pattern[p+2] != ']' {
			hi = pattern[p+2]
			p += 2
		}
		p++
		in = in || lo <= c && c <= hi
	}
	return 0, false, false
}
