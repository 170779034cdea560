package symbols

import (
	"context"
	"fmt"
	"io"
	"slices"

	"kprobe/symbols/debuginfod"
)

// openFetched opens what a debuginfod server sent before for a build-id.
func (d finder) openFetched(id string) (*image, io.Closer) {
	if d.fetched == nil {
		return nil, nil
	}
	path, ok := d.fetched.Cached(id)
	if !ok {
		return nil, nil
	}
	im, r := openImage("", path)
	if im != nil && im.buildID() != id {
		r.Close()
		return nil, nil
	}
	return im, r
}

// FetchDebug asks debuginfod servers for debug files that resolving a place needs and that this machine doesn't have:
// those of the module that the place names, or of the program and the modules with the symbol. It reports
// whether it got one. A Space made with a new Cache that has the client's Config then finds it. FetchDebug
// may take as long as the Config allows, so it must not be called while a process is stopped.
//
// Errors are those of Client.Fetch; files that were got before one stay.
func (s *Space) FetchDebug(ctx context.Context, c *debuginfod.Client, p Place) (got bool, err error) {
	for _, f := range s.filesOf(p) {
		one, err := f.fetchDebug(ctx, c)
		got = got || one
		if err != nil {
			return got, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return got, nil
}

func (f *File) fetchDebug(ctx context.Context, c *debuginfod.Client) (got bool, err error) {
	have := f.debugData()
	missing := have.alt
	fetch := func(id string) (string, error) {
		return c.Fetch(ctx, id, func(path string) error { return sameBuild(path, id) })
	}
	if have.err != nil && !f.im.hasDebug() && f.BuildID != "" {
		path, err := fetch(f.BuildID)
		if err != nil {
			return false, err
		}
		got = true
		if im, r := openImage("", path); im != nil {
			_, missing = f.openAlt(im, im.altLink())
			r.Close()
		}
	}
	if missing == "" {
		return got, nil
	}
	_, err = fetch(missing)
	return got || err == nil, err
}

// filesOf are the files that a place is about.
func (s *Space) filesOf(p Place) (out []*File) {
	add := func(m *Module) {
		if m != nil && !slices.Contains(out, m.File) {
			out = append(out, m.File)
		}
	}
	if list, err := s.modulesFor(p.Module); err == nil {
		for _, m := range list {
			if p.Module != "" || m.Main {
				add(m)
			}
		}
	}
	if p.Module == "" && p.File == "" {
		fn := p
		if p.Kind == PlaceLine {
			fn.Kind, fn.Line, fn.Lines = PlaceSymbol, 0, ""
		}
		sites, _ := s.Resolve(fn) // an unknown symbol has no sites
		for _, site := range sites {
			add(site.Module)
		}
	}
	return out
}

// sameBuild returns an error if a file is not the debug file of a build-id.
func sameBuild(path, id string) error {
	im, r := openImage("", path)
	if im == nil {
		return &FormatError{Path: path, What: "what the server sent", Why: "is not an ELF file for x86-64"}
	}
	defer r.Close()
	if have := im.buildID(); have != id {
		return &FormatError{Path: path, What: "what the server sent", Why: "is of another build: " + have}
	}
	return nil
}
