package fetch

import (
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"kprobe/internal/quote"
)

// SyntaxError is what is wrong with a definition, and where.
type SyntaxError struct {
	Code   Code
	Text   string // the kernel's text, with our detail behind a colon where there is some
	Input  string // the definition's words joined by one blank each
	Col    int    // bytes from the start of Input; may be one past the end and a blank
	Detail string // what kprobe adds; part of Text
	Err    error  // what the detail came from; nil for errors of the text alone
}

// Error returns Text: one line, without the definition.
func (e *SyntaxError) Error() string { return e.Text }

// Unwrap returns the error that a lookup ended with, or the kernel's errno.
func (e *SyntaxError) Unwrap() []error {
	if e.Err != nil {
		return []error{e.Err, e.Code.Errno()}
	}
	return []error{e.Code.Errno()}
}

// Errno is the number that the kernel's write fails with.
func (e *SyntaxError) Errno() syscall.Errno { return e.Code.Errno() }

// Caret returns two lines, each indented by two blanks and ended by a newline:
// the definition, and a caret under the culprit. Of a long line that isn't text it
// shows what is around the culprit.
func (e *SyntaxError) Caret() string {
	col := min(max(e.Col, 0), len(e.Input)+1)
	blanks := utf8.RuneCountInString(shown(e.Input[:min(col, len(e.Input))]))
	if col > len(e.Input) {
		blanks++
	}
	text := []rune(shown(e.Input))
	if len(text) > lineWidth && !IsText(e.Input) {
		from := max(0, min(blanks-lineWidth/2, len(text)-lineWidth))
		text, blanks = text[from:from+lineWidth], blanks-from
	}
	return "  " + string(text) + "\n  " + strings.Repeat(" ", blanks) + "^\n"
}

// lineWidth is how much is shown of a line that isn't text, in characters.
const lineWidth = 76

// IsText reports whether a definition may have been written as one: it is UTF-8,
// without control characters but tabs.
func IsText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r != '\t' && unicode.IsControl(r) })
}

// Shown is the line of a definition in a message: indented, blanks for tabs, and
// control characters escaped.
func Shown(text string) string { return "  " + shown(text) + "\n" }

func shown(text string) string {
	return string(quote.AppendPlain(nil, strings.ReplaceAll(text, "\t", " ")))
}

// newError makes the error of code at byte col of input.
func newError(code Code, input string, col int, detail string) *SyntaxError {
	e := &SyntaxError{Code: code, Text: code.Text(), Input: input, Col: col, Detail: detail}
	if detail != "" {
		e.Text = strings.TrimSuffix(e.Text, ".") + ": " + detail
	}
	return e
}
