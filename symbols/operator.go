package symbols

import "strings"

// operatorMangled are the codes of operators in mangled names, separated by
// blanks, of one in its unary and in its binary form (Itanium C++ ABI, 5.1.3).
var operatorMangled = map[string]string{
	"new": "nw", "new[]": "na", "delete": "dl", "delete[]": "da", "co_await": "aw",
	"+": "ps pl", "-": "ng mi", "*": "de ml", "/": "dv", "%": "rm", "&": "ad an", "|": "or", "^": "eo", "~": "co",
	"=": "aS", "+=": "pL", "-=": "mI", "*=": "mL", "/=": "dV", "%=": "rM", "&=": "aN", "|=": "oR", "^=": "eO",
	"<<": "ls", ">>": "rs", "<<=": "lS", ">>=": "rS", "==": "eq", "!=": "ne", "<": "lt", ">": "gt", "<=": "le", ">=": "ge",
	"<=>": "ss", "!": "nt", "&&": "aa", "||": "oo", "++": "pp", "--": "mm", ",": "cm", "->*": "pm", "->": "pt",
	"()": "cl", "[]": "ix", `""`: "li",
}

// operatorCodes are the codes one of which the mangled name of an operator has
// that a readable name ends in; nil where the name is of something else, or of a
// conversion. What follows an operator may be part of it, or template arguments:
// operator<<int> has the codes of < and of <<.
func operatorCodes(name string) (codes []string) {
	const word = "operator"
	name = withoutParams(name)
	at := strings.LastIndex(name, word)
	if at < 0 || at > 0 && isWord(name[at-1]) {
		return nil
	}
	rest := strings.TrimLeft(name[at+len(word):], " ")
	if strings.Contains(rest, "::") {
		return nil
	}
	for symbol, list := range operatorMangled {
		if strings.HasPrefix(squeeze(rest), symbol) {
			codes = append(codes, strings.Fields(list)...)
		}
	}
	return codes
}

// holdsAny reports whether a name has one of the codes; nil is of no operator.
func holdsAny(s string, codes []string) bool {
	for _, c := range codes {
		if strings.Contains(s, c) {
			return true
		}
	}
	return codes == nil
}
