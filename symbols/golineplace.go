package symbols

// goFile finds the starts of lines of files in Go's table, one in each function and
// inlined call.
func (s *lineSearch) goFile(t *goLines) (out []lineStart) {
	wanted := t.matching(s.match)
	_ = t.each(func(fn *goFunc) error {
		out = append(out, s.goRows(t, fn, wanted)...)
		return nil
	})
	return out
}

// goFunction finds the starts of a line that is counted from the start of a function,
// in that function and what of its file was inlined into it.
func (s *lineSearch) goFunction(t *goLines, fn *goFunc, line int) []lineStart {
	file, first, _ := t.ownLines(fn)
	s.first, s.line = first, first+line
	return s.goRows(t, fn, t.matching(func(f string) bool { return f == file }))
}

func (s *lineSearch) goRows(t *goLines, fn *goFunc, wanted func(file uint32) bool) (out []lineStart) {
	type home struct {
		tree int32
		line int
	}
	seen := map[home]bool{}
	for _, r := range t.rows(fn, wanted) {
		if r.line == 0 || !wanted(r.file) {
			continue
		}
		s.known = true
		if in := (home{r.tree, r.line}); s.take(r.line) && !seen[in] {
			seen[in] = true
			out = append(out, lineStart{at: uint64(t.text) + uint64(r.at), line: r.line})
		}
	}
	return out
}

// matching asks once for each file's name whether it matches.
func (t *goLines) matching(match func(name string) bool) func(file uint32) bool {
	known := map[uint32]bool{}
	return func(file uint32) bool {
		is, asked := known[file]
		if !asked {
			is = file != goNoFile && match(t.file(file))
			known[file] = is
		}
		return is
	}
}

// ownLines are the lines of a function's own code with where they start, its file,
// and the line where it is declared.
func (t *goLines) ownLines(fn *goFunc) (file string, first int, at map[int]uint64) {
	rows := t.rows(fn, nil)
	first, at = t.firstLine(fn), map[int]uint64{}
	of := uint32(goNoFile)
	for _, r := range rows {
		if r.tree >= 0 {
			continue
		}
		if of == goNoFile {
			of = r.file
		}
		if _, have := at[r.line]; !have && r.line > 0 && r.file == of {
			at[r.line] = uint64(t.text) + uint64(r.at)
		}
	}
	return t.file(of), first, at
}

// fileLines adds the lines of a file that have code to at, and gives its whole name;
// "" is: there are none. Several files of one name are an error.
func (t *goLines) fileLines(name string, at map[int]uint64) (file string, err error) {
	wanted := t.matching(func(f string) bool { return sameSource(f, name) })
	err = t.each(func(fn *goFunc) error {
		for _, r := range t.rows(fn, wanted) {
			if r.line == 0 || !wanted(r.file) {
				continue
			}
			have := t.file(r.file)
			if file == "" {
				file = have
			}
			if have != file {
				return severalFiles(name, file, have)
			}
			start := uint64(t.text) + uint64(r.at)
			if a, ok := at[r.line]; !ok || start < a {
				at[r.line] = start
			}
		}
		return nil
	})
	return file, err
}

// eachFile calls do once with the name of each file of which there is code.
func (t *goLines) eachFile(do func(name string)) {
	seen := map[uint32]bool{}
	_ = t.each(func(fn *goFunc) error {
		t.rows(fn, func(file uint32) bool {
			if file != goNoFile && !seen[file] {
				seen[file] = true
				do(t.file(file))
			}
			return false
		})
		return nil
	})
}
