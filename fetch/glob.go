package fetch

// globMatch reports whether all of s matches a pattern of *, ?, […], [!…] and
// \ before a character that is to be itself. A [ that is never closed is
// itself (lib/glob.c). Its time is bounded by the product of the lengths.
func globMatch(pat string, s []byte) bool {
	p, i := 0, 0
	starP, starI := -1, 0
	for i < len(s) {
		if p < len(pat) && pat[p] == '*' {
			starP, starI = p, i
			p++
			continue
		}
		if p < len(pat) {
			if n, ok := globOne(pat[p:], s[i]); ok {
				p += n
				i++
				continue
			}
		}
		if starP < 0 {
			return false
		}
		starI++
		p, i = starP+1, starI
	}
	for p < len(pat) && pat[p] == '*' {
		p++
	}
	return p == len(pat)
}

// globOne matches one character against the first element of pat, which is
// no star, and gives the element's length.
func globOne(pat string, c byte) (n int, ok bool) {
	switch pat[0] {
	case '?':
		return 1, true
	case '\\':
		if len(pat) > 1 {
			return 2, pat[1] == c
		}
	case '[':
		if n, ok := globClass(pat, c); n > 0 {
			return n, ok
		}
	}
	return 1, pat[0] == c
}

// globClass matches a class; n is 0 where it is never closed.
func globClass(pat string, c byte) (n int, ok bool) {
	i, invert, match := 1, false, false
	if i < len(pat) && pat[i] == '!' {
		invert = true
		i++
	}
	for first := true; i < len(pat); first = false {
		lo := pat[i]
		if lo == ']' && !first {
			return i + 1, match != invert
		}
		hi := lo
		if i+2 < len(pat) && pat[i+1] == '-' && pat[i+2] != ']' {
			hi = pat[i+2]
			i += 2
		}
		i++
		if lo <= c && c <= hi {
			match = true
		}
	}
	return 0, false
}
