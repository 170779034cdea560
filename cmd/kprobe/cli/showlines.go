package cli

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"kprobe/fetch"
	"kprobe/internal/procfs"
	"kprobe/internal/untrusted"
	"kprobe/output"
	"kprobe/symbols"
)

// lineRange is what stands behind the last colon of --lines: FROM, FROM-TO or
// FROM+NUM, as in perf probe. The zero lineRange is everything.
type lineRange struct {
	from, to int
	given    bool
}

// cutRange takes FROM-TO off a place.
func cutRange(text string) (place string, r lineRange, err error) {
	i := strings.LastIndexByte(text, ':')
	if i < 1 || i+1 == len(text) || text[i+1] < '0' || text[i+1] > '9' || strings.HasPrefix(text[i+1:], "0x") {
		return text, r, nil
	}
	place, r.given = text[:i], true
	first, second := text[i+1:], ""
	if j := strings.IndexAny(first, "-+"); j >= 0 {
		second, first = first[j:], first[:j]
	}
	if r.from, err = strconv.Atoi(first); err == nil {
		r.to = r.from
		if second != "" {
			if r.to, err = strconv.Atoi(second[1:]); second[0] == '+' {
				r.to += r.from
			}
		}
	}
	if err != nil || r.to < r.from {
		return "", r, misuse("%s: lines are FROM-TO or FROM+NUM", text)
	}
	return place, r, nil
}

// showLines lists the source lines of a function or of a file.
func showLines(ctx context.Context, d *Deps, m *messages, o *showOptions) error {
	text, r, err := cutRange(o.place)
	if err != nil {
		return err
	}
	asked, err := place(text)
	if err != nil {
		return fail(err)
	}
	if asked.File == "" && fetch.IsSource(asked.Symbol) {
		asked.Symbol, asked.File = "", asked.Symbol
	}
	space, err := o.find(ctx, d, asked, true)
	if err != nil {
		return err
	}
	found, to, err := sourceLines(space, asked, r)
	if err != nil {
		return fail(fmt.Errorf("lines of %s: %w", o.place, err))
	}
	if err := readText(space, found, to); err != nil {
		m.warn("the source of %s can't be read, only lines with code are listed: %v", found.Name, err)
	}
	w := output.NewWriter(d.Out)
	if o.form == output.JSON {
		_, err = w.Write(output.AppendSourceLinesJSON(nil, found))
	} else {
		_, err = w.Write(output.SourceLinesText(nil, found))
	}
	return closed(w, err)
}

// sourceLines finds the lines that have code, within the range.
func sourceLines(space *symbols.Space, asked symbols.Place, r lineRange) (*output.SourceLines, int, error) {
	s := &output.SourceLines{Name: asked.String()}
	to := 0
	if asked.Symbol == "" && asked.File != "" {
		s.Name = asked.File
		if asked.Module != "" {
			s.Name = asked.Module + ":" + asked.File
		}
		var err error
		if s.Code, s.File, err = space.FileLines(asked.Module, asked.File); err != nil {
			return nil, 0, err
		}
		s.From, to = 1, 1<<30
	} else {
		if err := functionLines(space, asked, s); err != nil {
			return nil, 0, err
		}
		s.From, to = s.Origin, s.Origin
		if n := len(s.Code); n > 0 {
			to = max(to, s.Code[n-1].Line)
		}
	}
	if r.given {
		s.From, to = s.Origin+r.from, s.Origin+r.to
		s.From = max(s.From, 1)
	}
	s.Code = slices.DeleteFunc(s.Code, func(c symbols.LineCode) bool { return c.Line < s.From || c.Line > to })
	return s, to, nil
}

// functionLines gathers the lines of a function that may have several bodies.
func functionLines(space *symbols.Space, asked symbols.Place, s *output.SourceLines) error {
	sites, err := space.Resolve(asked)
	if err != nil {
		return err
	}
	for i, site := range sites {
		code, file, first, err := space.Lines(site)
		if err != nil {
			return err
		}
		if i > 0 && (file != s.File || first != s.Origin) {
			return fmt.Errorf("%s means functions of several places, such as %s:%d and %s:%d: name one",
				asked, filepath.Base(s.File), s.Origin, filepath.Base(file), first)
		}
		s.File, s.Origin = file, first
		s.Code = append(s.Code, code...)
	}
	slices.SortStableFunc(s.Code, func(x, y symbols.LineCode) int { return x.Line - y.Line })
	s.Code = slices.CompactFunc(s.Code, func(x, y symbols.LineCode) bool { return x.Line == y.Line })
	s.Code = slices.DeleteFunc(s.Code, func(c symbols.LineCode) bool { return c.Line < s.Origin })
	return nil
}

// Bounds on a source file and on a line of it, in bytes.
const (
	maxSource     = 256 << 20
	maxSourceLine = 1 << 20
)

// readText reads the lines From to to of the source: where the process sees it,
// or as the compiler did.
func readText(space *symbols.Space, s *output.SourceLines, to int) (err error) {
	s.NoText = true
	if !filepath.IsAbs(s.File) {
		return fmt.Errorf("%s is relative to the folder that it was compiled in", s.File)
	}
	var f *os.File
	var info os.FileInfo
	if space.PID() != 0 {
		f, info, err = untrusted.OpenIn(procfs.Image(space.PID()).Path("root"), s.File)
	}
	if f == nil {
		if f, info, err = untrusted.Open(s.File); err != nil {
			return err
		}
	}
	defer f.Close()
	if info.Size() > maxSource {
		return fmt.Errorf("%s has %d bytes, which is more than a source file has", s.File, info.Size())
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxSourceLine)
	for n := 1; n <= to && lines.Scan(); n++ {
		if n >= s.From {
			s.Text = append(s.Text, lines.Text())
		}
	}
	if err := lines.Err(); err != nil {
		s.Text = nil
		return err
	}
	if n := len(s.Code); n > 0 && s.Code[n-1].Line >= s.From+len(s.Text) {
		s.Text = nil
		return fmt.Errorf("%s is shorter than what was compiled", s.File)
	}
	s.NoText = false
	return nil
}
