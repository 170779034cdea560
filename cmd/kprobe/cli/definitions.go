package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kprobe/cmd/kprobe/kept"
	"kprobe/fetch"
	"kprobe/symbols"
)

// sources says where definitions come from.
type sources struct {
	files []string // -F, in order; "-" is standard input
	args  []string // one definition each
	exec  string   // -x: the module of places that name none
	// disabled are the events that the files call disabled, after parse.
	disabled map[string]bool
}

// parse collects the definitions: those of files first, then those of the
// command line. One that is wrong makes all of them fail.
func (s *sources) parse(in io.Reader) ([]*fetch.Def, error) {
	var all []*fetch.Def
	for _, name := range s.files {
		defs, err := s.readFile(in, name)
		if err != nil {
			return nil, err
		}
		all = append(all, defs...)
	}
	for _, arg := range s.args {
		defs, err := parseArgument(arg)
		if err != nil {
			return nil, err
		}
		all = append(all, defs...)
	}
	for i, d := range all {
		var err error
		if all[i], err = s.inFile(d); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// given names the files.
func (s *sources) given() string {
	names := slices.Clone(s.files)
	for i, name := range names {
		if name == "-" {
			names[i] = stdinName
		}
	}
	return strings.Join(names, ", ")
}

// stdinName is what messages call standard input.
const stdinName = "standard input"

// parseArgument parses a definition, or several in the kernel's boot form.
func parseArgument(arg string) ([]*fetch.Def, error) {
	defs, err := fetch.ParseFile(strings.NewReader(arg), "")
	var at *fetch.FileError
	if errors.As(err, &at) {
		return nil, at.Err
	}
	if err != nil || len(defs) > 0 {
		return defs, err
	}
	// It is empty or a comment, which is no definition here.
	d, err := fetch.Parse(arg)
	return []*fetch.Def{d}, err
}

func (s *sources) readFile(in io.Reader, name string) ([]*fetch.Def, error) {
	r, called := in, stdinName
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, ofFile(name, err)
		}
		defer f.Close()
		r, called = f, name
	}
	marks := &kept.Marks{}
	defs, err := fetch.ParseFile(io.TeeReader(r, marks), called)
	if s.disabled == nil {
		s.disabled = map[string]bool{}
	}
	for _, event := range marks.Disabled() {
		s.disabled[event] = true
	}
	return defs, err
}

// inFile gives the definition with its place in the file of -x if it names no
// module.
func (s *sources) inFile(d *fetch.Def) (*fetch.Def, error) {
	if !d.HasPlace || d.Place.Kind == symbols.PlaceAddr {
		return d, nil
	}
	module := d.Place.Module
	if module == "" {
		module = s.exec
	} else if !strings.Contains(module, "/") {
		return d, nil
	}
	if module == "" {
		return d, nil
	}
	path, err := wholePath(module)
	if err != nil {
		return nil, err
	}
	placed := *d
	placed.Place.Module = path
	return &placed, nil
}

// wholePath gives a file's path as /proc/PID/maps has it: without links. A file
// that is not there keeps its name: it may be one in another mount namespace.
func wholePath(name string) (string, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return "", fmt.Errorf("file %s: %w", name, err)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return name, nil
	}
	return real, nil
}
