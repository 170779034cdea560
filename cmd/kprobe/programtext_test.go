package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// programText is a random program that is being written, and the definitions for it.
type programText struct {
	*rand.Rand
	source strings.Builder
	types  strings.Builder
	main   strings.Builder
	defs   []string
	n      int // of names so far
	lines  int // of the source so far, by which definitions name places
}

func (g *programText) name(prefix string) string {
	g.n++
	return fmt.Sprintf("%s%d", prefix, g.n)
}

func (g *programText) oneOf(list ...string) string { return list[g.IntN(len(list))] }

// put adds to the source and counts its lines.
func (g *programText) put(text string) {
	g.source.WriteString(text)
	g.lines += strings.Count(text, "\n")
}

// flush moves the types that were made to the source.
func (g *programText) flush() {
	g.put(g.types.String())
	g.types.Reset()
}

// fetched is an argument of a definition and the expression of the same value in the
// program's language, whose types are T.
type fetched[T any] struct {
	as, what string
	typ      *T
	x        string
}

// define adds a definition: what it begins with, its arguments, and what it ends with.
func define[T any](g *programText, head string, list []fetched[T], tail string) {
	for _, a := range list {
		head += " " + a.as + "=" + a.what
	}
	g.defs = append(g.defs, head+tail)
}

// deepValues is how definitions end that ask for all of nested values.
const deepValues = " elements=64 depth=8"
