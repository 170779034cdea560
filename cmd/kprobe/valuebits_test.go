package main

import (
	"regexp"
	"strings"
	"testing"
)

// bitfieldsOf is the source of a random program of C or C++, by which values are found that have bitfields:
// in packed structures, clang doesn't tell where each of them lies, nor which members behind them are some.
type bitfieldsOf string

var aBitfield = regexp.MustCompile(`\w: \d+;`)

// may reports whether a value, EVENT N.VALUE.MEMBER…, is a bitfield, a member of a packed structure with some,
// or an array of what has some.
func (source bitfieldsOf) may(path string) bool {
	words := strings.Split(path, ".")
	event, _, _ := strings.Cut(words[0], " ")
	function := regexp.MustCompile(`(?m)^(.*)\bf` + event[1:] + `\((.*)\)$`).FindStringSubmatch(string(source))
	if function == nil || len(words) < 2 {
		return false
	}
	inside, packed := function[2], false
	if event[0] == 'r' {
		inside = function[1] + " r"
	}
	for _, name := range words[1 : len(words)-1] {
		inside, packed = source.members(source.typeOf(inside, name))
	}
	last := words[len(words)-1]
	switch within, _ := source.members(source.typeOf(inside, last)); {
	case regexp.MustCompile(`\b` + last + `: \d+;`).MatchString(inside), packed && aBitfield.MatchString(inside):
		return true
	default:
		return regexp.MustCompile(`\b`+last+`\[`).MatchString(inside) && aBitfield.MatchString(within)
	}
}

// typeOf is the type with which a list of declarations declares a name.
func (bitfieldsOf) typeOf(declarations, name string) string {
	if m := regexp.MustCompile(`(\w+)[ *]+` + name + `\b`).FindStringSubmatch(declarations); m != nil {
		return m[1]
	}
	return ""
}

// members are the declarations in a structure, which may be packed.
func (source bitfieldsOf) members(name string) (declarations string, packed bool) {
	m := regexp.MustCompile(`(?s)(?:struct|union)([^;{}]*?) ` + name + ` \{\n(.*?)\n\}`).FindStringSubmatch(string(source))
	if m == nil {
		return "", false
	}
	return m[2], strings.Contains(m[1], "packed")
}

// TestBitfieldsOf finds bitfields, and nothing else.
func TestBitfieldsOf(t *testing.T) {
	source := bitfieldsOf(`
struct s1 {
	int m0: 5;
	int m1;
};
struct __attribute__((packed)) s2 {
	struct s1 m0;
	struct s1 m1[2];
	int m2[2];
};
struct __attribute__((packed, aligned(4))) s3 {
	int m0: 5;
	int m1;
};
struct s2 f0(struct s1 *p0, int p1, struct s3 p2)
{
`)
	for path, want := range map[string]bool{"e0 1.p0.m0": true, "e0 2.p0.m1": false, "e0 1.p1": false, "e0 1.p2.m1": true, "r0 1.r.m0.m0": true,
		"r0 1.r.m0.m1": false, "r0 1.r.m1": true, "r0 1.r.m2": false, "r0 1.r": false, "e1 1.p0": false} {
		if source.may(path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
}
