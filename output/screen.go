package output

import (
	"io"
	"strconv"
	"strings"
)

// Screen draws a picture again and again in one place of a terminal. Each picture is one write,
// between the marks of a synchronized update, and overwrites the previous one without clearing
// it, so nothing flickers. What the terminal showed above stays, and so does the last picture.
// It uses control sequences of ECMA-48 that all current terminals know. It is not safe for
// concurrent use. Only W must be set.
type Screen struct {
	W io.Writer

	lines         int // of the picture that is there
	width, height int // of the terminal then
	buf           []byte
}

// The sequences of a picture.
const (
	beginUpdate = "\x1b[?2026h" // begin synchronized update; unknown modes are ignored
	endUpdate   = "\x1b[?2026l"
	eraseLine   = "\x1b[K" // to its end
	eraseBelow  = "\x1b[J"
	eraseAll    = "\x1b[H\x1b[2J"
)

// Draw replaces the picture. Each line is cut at the terminal's width, in
// columns, and the picture at its height, less one line for the cursor.
func (s *Screen) Draw(lines []string, width, height int) error {
	b := append(s.buf[:0], beginUpdate...)
	switch {
	case s.lines > 0 && (width != s.width || height != s.height):
		// The terminal has wrapped the lines anew: where they are isn't known.
		b = append(b, eraseAll...)
	case s.lines > 0:
		b = append(b, "\x1b["...)
		b = strconv.AppendInt(b, int64(s.lines), 10)
		b = append(b, "A\r"...)
	}
	if n := max(height-1, 1); len(lines) > n {
		lines = lines[:n]
	}
	for _, line := range lines {
		b = append(b, cut(strings.TrimRight(line, " "), width)...)
		b = append(b, eraseLine+"\r\n"...)
	}
	b = append(b, eraseBelow+endUpdate...)
	s.buf, s.lines, s.width, s.height = b, len(lines), width, height
	_, err := s.W.Write(b)
	return err
}

// cut shortens a text to n columns; names in programs take one for each rune.
func cut(s string, n int) string {
	columns := 0
	for i := range s {
		if columns == n {
			return s[:i]
		}
		columns++
	}
	return s
}

// ellipsis shortens a text to n columns and marks that it did.
func ellipsis(s string, n int) string {
	if short := cut(s, n); short == s {
		return s
	}
	return cut(s, max(n-1, 0)) + "…"
}

// middle shortens a name to n characters where it is longer: to its start and, as names
// of one program begin alike, more of its end.
func middle(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	head := max(n-1, 0) / 3
	return ellipsis(s, head+1) + string(runes[len(runes)-max(n-1-head, 0):])
}
