package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"kprobe/fetch"
	"kprobe/internal/procfs"
	"kprobe/probe"
	"kprobe/symbols"
	"kprobe/symbols/debuginfod"
)

// checker checks definitions before they are kept.
type checker struct {
	d      *Deps
	m      *messages
	where  *where
	spaces map[string]*symbols.Space // by path, so that each file is read once; "" is the process
}

// pin checks a definition and returns it as it is to be kept: with the file
// that its place is in, so that it means the same in every process.
func (c *checker) pin(ctx context.Context, d *fetch.Def) (*fetch.Def, error) {
	if d.Kind == fetch.Delete {
		return d, nil
	}
	space, found, err := c.check(d)
	if conf, ok := c.where.config(c.d); ok && space != nil && needsDebug(err) {
		if got, _ := space.FetchDebug(ctx, debuginfod.New(conf, nil), d.Place); got {
			clear(c.spaces)
			_, found, err = c.check(d)
		}
	}
	if err != nil || found == nil {
		return d, err
	}
	if d.Place.Module == "" {
		if d, err = pinned(d, found); err != nil {
			return nil, err
		}
	}
	return d, roundTrips(d)
}

// check checks a definition where its place is looked up; nothing is found, and
// nothing wrong, where that is nowhere yet.
func (c *checker) check(d *fetch.Def) (*symbols.Space, *probe.Checked, error) {
	space, err := c.space(d)
	if err != nil || space == nil {
		return nil, nil, err
	}
	found, err := c.d.Engine.Check(space, d)
	if space.PID() == 0 || d.Place.Module == "" || !errors.Is(err, symbols.ErrNotMapped) {
		return space, found, err
	}
	if space, err = c.unmapped(d, err); err != nil || space == nil {
		return nil, nil, err
	}
	found, err = c.d.Engine.Check(space, d)
	return space, found, err
}

// space finds where a definition's place is to be looked up; nil where a
// library is not there (yet): then nothing can be checked.
func (c *checker) space(d *fetch.Def) (*symbols.Space, error) {
	path, module := "", d.Place.Module
	switch {
	case len(c.where.pids) > 0:
	case module == "" && d.Place.Kind == symbols.PlaceAddr:
		return nil, &probe.DefError{Def: d, Err: d.Error(fetch.BadProbeAddr,
			"an address means something in a process only: -p PID, or FILE:0xOFFSET", nil)}
	case module == "":
		return nil, misuse("where is %s? give -x FILE, a program or a library, or -p PID", d.Place)
	case strings.Contains(module, "/"):
		path = module
	default:
		if path = library(module); path == "" {
			c.m.warn("%s is not checked: no file is known by the name %s; -x FILE or -p PID says which", d.Event, module)
			return nil, nil
		}
	}
	if s := c.spaces[path]; s != nil {
		return s, nil
	}
	var s *symbols.Space
	var err error
	if path == "" {
		s, err = c.where.open(c.where.cache(c.d), "")
	} else {
		s, err = c.where.cache(c.d).OpenFileSpace(path)
	}
	if err != nil {
		return nil, &probe.DefError{Def: d, Err: d.Error(fetch.FileNotFound, err.Error(), err)}
	}
	c.spaces[path] = s
	return s, nil
}

// unmapped finds where a place in a file that the process of -p doesn't map can
// be looked up: in the file, if it is a library, which the process may load yet;
// nil where no file is known by the name. cause is what is wrong else.
func (c *checker) unmapped(d *fetch.Def, cause error) (*symbols.Space, error) {
	path, module := "", d.Place.Module
	if strings.Contains(module, "/") {
		path = procfs.Image(c.where.pids[0]).Path("root" + module)
	} else if path = library(module); path == "" {
		c.m.warn("%s is not checked: process %d does not map %s, and no file is known by that name", d.Event, c.where.pids[0], module)
		return nil, nil
	}
	if !loadable(path) {
		return nil, cause
	}
	if s := c.spaces[path]; s != nil {
		return s, nil
	}
	s, err := c.where.cache(c.d).OpenFileSpace(path)
	if err != nil {
		return nil, &probe.DefError{Def: d, Err: d.Error(fetch.FileNotFound, err.Error(), err)}
	}
	c.spaces[path] = s
	return s, nil
}

// pinned gives a definition without a module the file where it was found.
func pinned(d *fetch.Def, found *probe.Checked) (*fetch.Def, error) {
	m := found.Module
	switch {
	case m == nil:
		return nil, &probe.DefError{Def: d, Err: d.Error(fetch.NonUniqSymbol,
			"it matches functions of several files: write MOD:"+d.Place.String(), nil)}
	case !filepath.IsAbs(m.Path):
		return nil, &probe.DefError{Def: d, Err: d.Error(fetch.NoRegularFile, m.Path+" is no file that another process could map", nil)}
	}
	placed := *d
	placed.Place.Module = m.Path
	if d.Place.Kind != symbols.PlaceAddr {
		return &placed, nil
	}
	// The address is that of one process: what lasts is the place in the file.
	off, ok := m.File.VaddrToOff(found.Sites[0].Vaddr)
	if !ok {
		return nil, &probe.DefError{Def: d, Err: d.Error(fetch.BadProbeAddr, "no part of the file is there", nil)}
	}
	placed.Place = symbols.Place{Kind: symbols.PlaceOffset, Module: m.Path, Value: uint64(off), Return: d.Place.Return}
	return &placed, nil
}

// roundTrips makes sure that the definition can be read back from the file:
// not every path can stand in one.
func roundTrips(d *fetch.Def) error {
	back, err := fetch.Parse(d.String())
	if err == nil && back.Place != d.Place {
		err = errors.New("it would be read as another place")
	}
	if err != nil {
		return fmt.Errorf("%s can't be kept: %s can't be written in a definition: %w", d.Event, d.Place, err)
	}
	return nil
}
