package fetch

import "strings"

// word is one word of a definition and its column in the re-joined text.
type word struct {
	text string
	col  int
}

// line is a definition taken apart into words. Everything from the word "if"
// on stays one piece: blanks inside a filter's quotes are part of its values.
type line struct {
	words  []word
	input  string // words joined by one blank, the filter last
	filter *word  // what follows "if"; nil without one
}

func isBlank(c byte) bool {
	return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\v' || c == '\f'
}

// splitLine splits as the kernel does, on blanks. Only the place (word 1, or
// word 0 of a bare place) may hold blanks: in double quotes, or where its
// parentheses are open and close again, as in "ns::f(int, char const*)"; and names of
// templates may, in arguments too: Arr<int, 3>::x.
func splitLine(s string) line {
	var l line
	var b strings.Builder
	add := func(text string) word {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		w := word{text, b.Len()}
		b.WriteString(text)
		return w
	}
	placeAt := 1
	for i := 0; ; {
		for i < len(s) && isBlank(s[i]) {
			i++
		}
		if i == len(s) {
			break
		}
		n := len(l.words)
		end := wordEnd(s, i)
		if n == 0 && !isCommandWord(s[i:end]) {
			placeAt = 0
		}
		if n == placeAt {
			end = placeEnd(s, i, end)
		}
		if n >= placeAt {
			end = templateEnd(s, i, end)
		}
		if n > placeAt {
			end = castEnd(s, i, end)
		}
		if n > placeAt && s[i:end] == "if" {
			add("if")
			w := add(strings.TrimSpace(s[end:]))
			if w.text == "" {
				// The caret of a missing rule stands one past the end.
				l.input = strings.TrimSuffix(b.String(), " ")
			} else {
				l.input = b.String()
			}
			l.filter = &w
			return l
		}
		l.words = append(l.words, add(s[i:end]))
		i = end
	}
	l.input = b.String()
	return l
}

func wordEnd(s string, i int) int {
	for i < len(s) && !isBlank(s[i]) {
		i++
	}
	return i
}

// placeEnd extends a place word over blanks inside quotes or parentheses.
func placeEnd(s string, start, end int) int {
	if s[start] == '"' {
		if n := quoteEnd(s[start+1:]); n >= 0 {
			return wordEnd(s, start+1+n+1)
		}
		return end
	}
	// A path keeps the kernel's splitting: its parenthesis is a REFCTR.
	if depth(s[start:end]) <= 0 || strings.HasPrefix(s[start:end], "/") {
		return end
	}
	open := depth(s[start:end])
	for e := end; e < len(s); {
		for e < len(s) && isBlank(s[e]) {
			e++
		}
		from := e
		e = wordEnd(s, e)
		if open += depth(s[from:e]); open <= 0 {
			return e
		}
	}
	return end
}

// templateEnd extends a word over the blanks of a template's arguments: they end behind the
// brackets that the word leaves open.
func templateEnd(s string, start, end int) int {
	open := openBracket(s[start:end])
	if open < 0 {
		return end
	}
	deep := 0
	for i := start + open; i < len(s); i++ {
		switch c := s[i]; {
		case c == '<':
			deep++
		case c == '>':
			if deep--; deep == 0 {
				return templateEnd(s, start, wordEnd(s, i))
			}
		case isBlank(c):
			if i+1 == len(s) || !blankInTemplate(s[i-1], s[i+1]) {
				return end
			}
		case !isWord(c) && !strings.ContainsRune(":,*&()[]", rune(c)):
			return end
		}
	}
	return end
}

// openBracket is where a word's first bracket stands that begins a template's arguments and
// isn't closed in it; -1: there is none.
func openBracket(w string) int {
	deep, at := 0, -1
	for i := 1; i < len(w); i++ {
		switch {
		case w[i] == '<' && deep == 0 && (!isWord(w[i-1]) || strings.HasSuffix(w[:i], "operator")):
			return -1
		case w[i] == '<':
			if deep++; deep == 1 {
				at = i
			}
		case w[i] == '>' && deep > 0 && w[i-1] != '-':
			deep--
		}
	}
	if deep == 0 {
		return -1
	}
	return at
}

// blankInTemplate reports whether a blank between two characters may stand in a template's
// arguments: behind a comma, between words, before stars.
func blankInTemplate(before, after byte) bool {
	return before == ',' || isWord(before) && (isWord(after) || after == '*' || after == '&' || after == '>') || before == '>' && after == '>'
}

// castEnd extends an argument's word over the blanks of types in its casts:
// (struct conn *)p, (unsigned long)n.
func castEnd(s string, start, end int) int {
	for {
		open := strings.LastIndexByte(s[start:end], '(')
		if open < 0 || strings.IndexByte(s[start+open:end], ')') >= 0 {
			return end
		}
		to := strings.IndexByte(s[end:], ')')
		if to < 0 || !isTypeText(s[start+open+1:end+to]) {
			return end
		}
		end = wordEnd(s, end+to)
	}
}

// isTypeText reports words that can name a type of C, with stars.
func isTypeText(s string) bool {
	words := strings.Fields(strings.NewReplacer("*", " * ", ",", " , ", "<", " < ", ">", " > ").Replace(s))
	names, special := 0, false
	if strings.HasPrefix(s, "<") || strings.Count(s, "<") != strings.Count(s, ">") {
		return false
	}
	for _, w := range words {
		switch w {
		case "*", ",", "<", ">":
			special = true
			continue
		case "struct", "union", "enum", "class", "const", "volatile", "unsigned", "signed", "long", "short":
			special = true
		}
		if !isAlpha(w[0]) && (!isDigit(w[0]) || names == 0) {
			return false
		}
		names++
	}
	return names > 0 && special
}

// depth counts the parentheses that are open at the end of s.
func depth(s string) int {
	return strings.Count(s, "(") - strings.Count(s, ")")
}

// isCommandWord reports whether a first word is one of the kernel's: a letter,
// a maxactive, a name. Anything else is a bare place.
func isCommandWord(w string) bool {
	switch w[0] {
	case '-', '!':
		return true
	case 'p', 'r', 'j':
		return len(w) == 1 || w[1] == ':' || w[1] >= '0' && w[1] <= '9'
	case 'w':
		return len(w) == 1 || w[1] == ':' && !strings.HasPrefix(w[1:], "::")
	}
	return false
}

// past is the column one past the end of the text and a blank, where the
// kernel points when a word is missing.
func (l *line) past() int { return len(l.input) + 1 }

func (l *line) err(code Code, col int, detail string) *SyntaxError {
	return newError(code, l.input, col, detail)
}
