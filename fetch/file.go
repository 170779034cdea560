package fetch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// maxLine bounds a line of a file of definitions: 128 arguments at their
// longest, with room for a filter.
const maxLine = 1 << 17

// FileError says in which line of which file a definition is wrong.
type FileError struct {
	Name string
	Line int // from 1
	Err  error
}

// Error returns NAME:LINE: and the error.
func (e *FileError) Error() string { return fmt.Sprintf("%s:%d: %v", e.Name, e.Line, e.Err) }

// Unwrap returns the error of the definition.
func (e *FileError) Unwrap() error { return e.Err }

// ParseFile parses definitions, one on each line. It skips blank lines and lines that start
// with #, and also accepts lines in the form of the kernel's boot parameter (see ParseBoot). It
// stops at the first error: a *FileError around a *SyntaxError or around what r failed with.
// name is used in errors only.
func ParseFile(r io.Reader, name string) ([]*Def, error) {
	var defs []*Def
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 4096), maxLine)
	number := 0
	sc.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		n := 0
		for n < len(data) && data[n] == '\n' {
			n++
		}
		number += n // of blank lines there may be millions
		advance, line, err := bufio.ScanLines(data[n:], atEOF)
		return n + advance, line, err
	})
	for sc.Scan() {
		number++
		text := sc.Text()
		if number == 1 {
			text = strings.TrimPrefix(text, "\ufeff") // a byte order mark, as some editors write
		}
		text = strings.TrimSpace(text)
		if text == "" || text[0] == '#' {
			continue
		}
		more, err := parseEither(text)
		if err != nil {
			return nil, &FileError{name, number, err}
		}
		defs = append(defs, more...)
	}
	if err := sc.Err(); err != nil {
		return nil, ReadError(name, number+1, err)
	}
	return defs, nil
}

// ReadError is the error of a file of definitions that could not be read beyond a line.
func ReadError(name string, line int, err error) error {
	if errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("the line is longer than %d bytes", maxLine)
	}
	var path *fs.PathError
	if errors.As(err, &path) && path.Path == name && line == 1 {
		return fmt.Errorf("%s: %w", name, path.Err)
	}
	return &FileError{name, line, fmt.Errorf("read definitions: %w", err)}
}

func parseEither(text string) ([]*Def, error) {
	if isBoot(text) {
		return ParseBoot(text)
	}
	d, err := Parse(text)
	if err != nil {
		return nil, err
	}
	return []*Def{d}, nil
}

// isBoot recognises the boot form: a comma right after a definition's first
// word. Later words may hold blanks, in a filter.
func isBoot(s string) bool {
	i := strings.IndexAny(s, ",;")
	return i > 0 && !strings.ContainsAny(s[:i], " \t") && isCommandWord(s[:i])
}

// ParseBoot parses the form of the kernel's kprobe_event= parameter:
// definitions separated by semicolons, their words by commas instead of
// blanks. Commas and semicolons inside parentheses or quotes stay what they
// are. Errors are *SyntaxError of the definition with blanks.
func ParseBoot(s string) ([]*Def, error) {
	var defs []*Def
	for _, text := range splitBoot(s) {
		if strings.TrimSpace(text) == "" {
			continue
		}
		d, err := Parse(text)
		if err != nil {
			return nil, err
		}
		defs = append(defs, d)
	}
	return defs, nil
}

// splitBoot cuts at semicolons and makes commas blanks.
func splitBoot(s string) []string {
	var out []string
	var b strings.Builder
	open, quoted := 0, false
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '(' || c == '{':
			open++
		case (c == ')' || c == '}') && open > 0:
			open--
		case c == ';' && open == 0:
			out = append(out, b.String())
			b.Reset()
			continue
		case c == ',' && open == 0:
			c = ' '
		}
		b.WriteByte(c)
	}
	return append(out, b.String())
}
