package cli

import (
	"context"
	"errors"
	"os/exec"
	"strings"

	"github.com/spf13/pflag"

	"kprobe/fetch"
	"kprobe/symbols"
	"kprobe/symbols/debuginfod"
)

// servers says whether and how debuginfod servers are asked for debug files: those of
// DEBUGINFOD_URLS, before any process is touched.
type servers struct {
	off bool
}

func (s *servers) register(f *pflag.FlagSet) {
	f.BoolVar(&s.off, "no-debuginfod", false, "don't ask the servers in DEBUGINFOD_URLS for debug files")
}

// config is what the environment says; ok is false when nobody is to be asked.
func (s *servers) config(d *Deps) (c debuginfod.Config, ok bool) {
	if s.off {
		return c, false
	}
	c = debuginfod.FromEnv(d.getenv)
	return c, len(c.Servers) > 0
}

// cache makes a Cache that finds what servers sent before.
func (s *servers) cache(d *Deps) *symbols.Cache {
	if c, ok := s.config(d); ok {
		return &symbols.Cache{Debuginfod: &c}
	}
	return &symbols.Cache{}
}

// needsDebug reports an error that debug files could cure.
func needsDebug(err error) bool {
	return errors.Is(err, symbols.ErrNoDebugInfo) || errors.Is(err, fetch.ErrNoDebugInfo) || errors.Is(err, symbols.ErrNoSymbol)
}

// find opens the space of -p or -x for a question about a place. debug says
// that the question needs debug information; what is nowhere here is asked of
// servers.
func (w *where) find(ctx context.Context, d *Deps, p symbols.Place, debug bool) (*symbols.Space, error) {
	space, err := w.open(w.cache(d), p.Module)
	if err != nil {
		return nil, err
	}
	conf, ok := w.config(d)
	if !ok {
		return space, nil
	}
	if p.Kind == symbols.PlaceUSDT && !debug {
		return space, nil // no debug file has more notes than the program
	}
	if !debug && !p.IsGlob() {
		_, err := space.Resolve(p)
		debug = needsDebug(err)
	}
	if !debug {
		return space, nil
	}
	// The answer without debug files says what is missing.
	if got, _ := space.FetchDebug(ctx, debuginfod.New(conf, nil), p); got {
		return w.open(w.cache(d), p.Module)
	}
	return space, nil
}

// fetch gets the debug files that the definitions need, before the target is
// attached to. What can't be had is left to the session to say.
func (o *sessionOptions) fetch(ctx context.Context, d *Deps, m *messages, defs []*fetch.Def) {
	conf, ok := o.config(d)
	if !ok {
		return
	}
	client := debuginfod.New(conf, nil)
	if o.verbose {
		client = debuginfod.New(conf, m.say)
	}
	for _, space := range o.spaces(d) {
		for _, def := range defs {
			if path := library(def.Place.Module); len(o.pids) == 0 && (path != "" || strings.Contains(def.Place.Module, "/")) {
				if path == "" {
					path = def.Place.Module
				}
				if lib, err := o.cache(d).OpenFileSpace(path); err == nil {
					space = lib
				}
			}
			if _, err := d.Engine.Check(space, def); needsDebug(err) {
				if _, err := space.FetchDebug(ctx, client, def.Place); err != nil && o.verbose {
					m.say("no debug files for %s: %v", def.Place, err)
				}
			}
		}
	}
}

// spaces are those of the target, as it is or as its file is.
func (o *sessionOptions) spaces(d *Deps) (out []*symbols.Space) {
	if len(o.command) > 0 {
		path, err := exec.LookPath(o.command[0])
		if err != nil {
			return nil
		}
		if s, err := o.cache(d).OpenFileSpace(path); err == nil {
			out = append(out, s)
		}
		return out
	}
	for _, pid := range o.pids {
		if s, err := o.cache(d).OpenProcess(pid, nil); err == nil {
			out = append(out, s)
		}
	}
	return out
}
