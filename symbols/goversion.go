package symbols

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"
)

// goBuildInfo is what the section .go.buildinfo starts with (cmd/link, data.go).
const goBuildInfo = "\xff Go buildinf:"

// GoVersion returns the version of Go that made the file: 1 and 26 for go1.26.8. ok is false if
// the file doesn't say, as before Go 1.18.
func (f *File) GoVersion() (major, minor int, ok bool) {
	b, _, ok := f.SectionData(".go.buildinfo")
	const flags, text = 15, 32
	if !ok || len(b) <= text || !bytes.HasPrefix(b, []byte(goBuildInfo)) || b[flags]&2 == 0 {
		return 0, 0, false
	}
	n, size := binary.Uvarint(b[text:])
	if size <= 0 || n > uint64(len(b)-text-size) {
		return 0, 0, false
	}
	return goVersion(string(b[text+size:][:n]))
}

// goVersion takes apart go1.26.8, go1.24rc1, and devel go1.25-5f7cc9e.
func goVersion(s string) (major, minor int, ok bool) {
	for _, word := range strings.Fields(s) {
		v, is := strings.CutPrefix(word, "go")
		first, rest, dot := strings.Cut(v, ".")
		if !is || !dot {
			continue
		}
		end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
		if end < 0 {
			end = len(rest)
		}
		major, err := strconv.Atoi(first)
		minor, err2 := strconv.Atoi(rest[:end])
		return major, minor, err == nil && err2 == nil
	}
	return 0, 0, false
}
