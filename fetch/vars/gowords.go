package vars

import (
	"strconv"
	"strings"

	"kprobe/fetch"
	"kprobe/symbols"
)

// stripped answers $argN of a Go function without debug information, whose parameters aren't
// known. It returns the N-th word that Go's convention passes
// (go/src/cmd/compile/abi-internal.md), counted from 1, just as C's convention answers for C
// functions. Functions written in assembler take their words from the stack. ok is false for
// functions that aren't Go's.
func (s *Scope) stripped(n int) (v fetch.Variable, ok bool, err error) {
	m := s.site.Module
	if m == nil || !m.File.IsGo() {
		return v, false, nil
	}
	regs := goABI().ints
	switch kind := m.File.GoKind(s.site.Func.Start); kind {
	case symbols.GoForeign:
		return v, false, nil
	case symbols.GoCompiled:
		if n > len(regs) {
			return v, true, unknown("Go passes %d words in registers; without debug information it is not known where the others are", len(regs))
		}
		return fetch.Variable{Chain: fetch.Chain{Source: fetch.SourceReg, Reg: regs[n-1]}, Type: fetch.DefaultType()}, true, nil
	case symbols.GoAssembled:
		return fetch.Variable{Chain: fetch.Chain{Source: fetch.SourceStack, Off: 8 * int64(n)}, Type: fetch.DefaultType()}, true, nil
	}
	return v, true, unknown("without debug information it is not known which of Go's calling conventions it has")
}

// strippedResult is stripped for results: it returns their N-th word, counted from 1. Go
// returns words in the same registers in which it passes words.
func (s *Scope) strippedResult(n int) (v fetch.Variable, ok bool, err error) {
	v, ok, err = s.stripped(n)
	switch {
	case !ok:
	case err == nil && v.Chain.Source == fetch.SourceStack:
		err = unknown("Go's assembly functions return on the stack; without debug information it is not known where")
	case n > len(goABI().ints):
		err = unknown("Go returns %d words in registers; without debug information it is not known where the others are", len(goABI().ints))
	}
	v.AtReturn = true
	return v, ok, err
}

// resultNumber returns the N of $retvalN.
func resultNumber(text string) (n int, ok bool) {
	digits, is := strings.CutPrefix(text, "$retval")
	n, err := strconv.Atoi(digits)
	return n, is && err == nil && n >= 1
}
