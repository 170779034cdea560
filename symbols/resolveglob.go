package symbols

import (
	"errors"
	"iter"
	"runtime"
	"slices"
	"sync"
)

// resolveInEach finds the symbol in each of the modules whose names match a pattern.
// Those that have no such function are left out.
func (s *Space) resolveInEach(p Place, list []*Module) ([]Site, error) {
	var out []Site
	var without error
	paths, seen := map[string]bool{}, map[Addr]bool{}
	for _, m := range list {
		if paths[m.Path] {
			continue // the file is loaded twice, and the first has found both
		}
		paths[m.Path] = true
		in := p
		in.Module = m.Path
		sites, err := s.resolveSymbol(in, false)
		switch {
		case errors.Is(err, ErrNoSymbol):
		case errors.Is(err, ErrUnboundIFunc), errors.Is(err, ErrNotExecutable):
			without = err
		case err != nil:
			return nil, err
		}
		for _, site := range sites {
			if !seen[site.Addr] { // the IFUNC of another module may have led to it
				seen[site.Addr] = true
				out = append(out, site)
			}
		}
	}
	switch {
	case len(out) > 0:
		return out, nil
	case without != nil:
		return nil, without
	}
	return nil, s.notFound(p, list)
}

// manySites is the number of sites that are computed together, on all CPUs.
const manySites = 1 << 12

// eachSite returns siteOf for symbols, in their order.
func (s *Space) eachSite(p Place, m *Module, syms []Symbol) iter.Seq2[Site, error] {
	return func(yield func(Site, error) bool) {
		type found struct {
			site Site
			err  error
		}
		buf := make([]found, min(manySites, len(syms)))
		for part := range slices.Chunk(syms, manySites) {
			n := min(runtime.GOMAXPROCS(0), 1+len(part)/64)
			var wg sync.WaitGroup
			for k := range n {
				wg.Go(func() {
					for i := len(part) * k / n; i < len(part)*(k+1)/n; i++ {
						if part[i].Kind != KindIFunc {
							buf[i].site, buf[i].err = s.siteOf(p, m, part[i])
						}
					}
				})
			}
			wg.Wait()
			for i := range part {
				if part[i].Kind == KindIFunc { // the process is asked
					buf[i].site, buf[i].err = s.siteOf(p, m, part[i])
				}
				if !yield(buf[i].site, buf[i].err) {
					return
				}
			}
		}
	}
}

// resolveGlob finds all functions whose names match. A name that several
// modules have means, as ever, the first of them.
func (s *Space) resolveGlob(p Place, list []*Module) ([]Site, error) {
	first := map[string]*Module{}
	var seen map[Addr]bool
	var out []Site
	var unbound error
	for _, m := range list {
		syms := slices.DeleteFunc(m.File.Glob(p.Symbol), func(sym Symbol) bool {
			if p.File != "" && !sameSource(sym.File, p.File) && !m.File.declaredIn(sym.Vaddr, p.File) {
				return true
			}
			if sym.Binding == Local || p.Module != "" {
				return false
			}
			if o := first[sym.Name]; o != nil && o != m {
				return true
			}
			first[sym.Name] = m
			return false
		})
		out = slices.Grow(out, len(syms))
		if len(seen) == 0 {
			seen = make(map[Addr]bool, len(syms))
		}
		for site, err := range s.eachSite(p, m, syms) {
			if errors.Is(err, ErrUnboundIFunc) {
				unbound = err // an IFUNC that isn't bound yet must not make the others fail
				continue
			}
			if errors.Is(err, ErrNotExecutable) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if !seen[site.Addr] {
				seen[site.Addr] = true
				out = append(out, site)
			}
		}
	}
	if len(out) == 0 {
		return nil, unbound
	}
	return out, nil
}
