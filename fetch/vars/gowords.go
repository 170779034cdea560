package vars

import (
	"fmt"
	"strconv"
	"strings"

	"kprobe/fetch"
	"kprobe/symbols"
)

// stripped answers $argN and $retval of a Go function without debug information,
// whose parameters nobody knows: word is the N-th of them by Go's conventions
// (go/src/cmd/compile/abi-internal.md), from 1, as a C function's would be by C's.
// What the assembler made takes words of the stack. ok is false for functions
// that aren't Go's.
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
			return v, true, noValueError(fmt.Sprintf("Go passes %d words in registers; without debug information nobody knows where the others are", len(regs)))
		}
		return fetch.Variable{Chain: fetch.Chain{Source: fetch.SourceReg, Reg: regs[n-1]}, Type: fetch.DefaultType()}, true, nil
	case symbols.GoAssembled:
		return fetch.Variable{Chain: fetch.Chain{Source: fetch.SourceStack, Off: 8 * int64(n)}, Type: fetch.DefaultType()}, true, nil
	}
	return v, true, noValueError("by which of Go's conventions it is called is not known without debug information")
}

// strippedResult is stripped for the results: the N-th word of them, from 1. Go returns
// words in the registers that it passes words in.
func (s *Scope) strippedResult(n int) (v fetch.Variable, ok bool, err error) {
	v, ok, err = s.stripped(n)
	switch {
	case !ok:
	case err == nil && v.Chain.Source == fetch.SourceStack:
		err = noValueError("Go's assembler returns on the stack, where is not known without debug information")
	case n > len(goABI().ints):
		err = noValueError(fmt.Sprintf("Go returns %d words in registers; without debug information nobody knows where the others are", len(goABI().ints)))
	}
	v.AtReturn = true
	return v, ok, err
}

// resultNumber is the N of $retvalN.
func resultNumber(text string) (n int, ok bool) {
	digits, is := strings.CutPrefix(text, "$retval")
	n, err := strconv.Atoi(digits)
	return n, is && err == nil && n >= 1
}
