package engine

import (
	"context"
	"os"
	"slices"
	"sync"

	"kprobe/fetch"
	"kprobe/internal/procfs"
	"kprobe/probe/assess"
	"kprobe/probe/memory"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// What is looked up before a thread is seized
//
// Symbols, debug information, instructions and branch targets are read from files, and
// everything is cached with the file. So it is looked up once on the caller's goroutine, before
// the process is attached to (Options.Expect) or a change is made. The planning code, on the
// tracer's thread, then finds it in the cache. The results are not used otherwise, and errors
// come from the planning code.

// Prepared is what files say about a process that will be attached to.
type Prepared struct {
	space  *symbols.Space
	mem    *handedMemory
	around *survey.Around
	places foundPlaces
}

// foundPlaces are the places of definitions, as they were found in these modules.
type foundPlaces struct {
	modules []*symbols.Module
	of      map[*fetch.Def][]symbols.Site
}

// has reports whether the places of all these definitions were looked for.
func (f *foundPlaces) has(defs []*fetch.Def) bool {
	return f.of != nil && !slices.ContainsFunc(defs, func(d *fetch.Def) bool { _, ok := f.of[d]; return !ok })
}

// take removes the places of a definition and returns them. ok is false if they were not looked for or
// the modules have changed.
func (f *foundPlaces) take(d *fetch.Def, space *symbols.Space) ([]symbols.Site, bool) {
	places, ok := f.of[d]
	delete(f.of, d)
	return places, ok && slices.Equal(f.modules, space.Modules())
}

// handedMemory is a process's memory. It is read through /proc before the process is attached to, and
// through the tracer after that.
type handedMemory struct {
	mu  sync.Mutex
	now symbols.Memory
}

// ReadMemory implements symbols.Memory.
func (m *handedMemory) ReadMemory(b []byte, at symbols.Addr) (int, error) {
	m.mu.Lock()
	now := m.now
	m.mu.Unlock()
	return now.ReadMemory(b, at)
}

func (m *handedMemory) hand(to symbols.Memory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = to
}

// Prepare looks up what files say about definitions in a process that is not traced yet. The result is
// nil if it couldn't: attaching will say why. It returns early when ctx is done.
func (s *Engine) Prepare(ctx context.Context, pid int, defs []*fetch.Def) (*Prepared, error) {
	if len(defs) == 0 {
		return nil, ctx.Err()
	}
	f, err := os.Open(procfs.Image(pid).Path("mem"))
	if err != nil {
		return nil, ctx.Err() // attaching says why
	}
	got := make(chan *Prepared, 1)
	go func() {
		p := &Prepared{mem: &handedMemory{now: memory.Whole{Mem: f}}, around: new(survey.Around)}
		var err error
		if p.space, err = s.files.OpenProcess(pid, p.mem); err == nil {
			p.places = s.lookUp(ctx, p.space, p.around, defs)
			got <- p
		} else {
			got <- nil
		}
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case p := <-got:
		return p, ctx.Err()
	}
}

// PrepareMore does the same as Prepare for definitions that will be added to the session's processes.
func (s *Engine) PrepareMore(ctx context.Context, defs []*fetch.Def) error {
	if s.Tracer.Here() {
		return nil
	}
	type known struct {
		tg     *Target
		places foundPlaces
	}
	var list []known
	err := s.Tracer.Do(func() error {
		for _, tg := range s.Targets {
			if tg.IsMain() && !tg.loads() && !tg.found.has(defs) {
				list = append(list, known{tg: tg})
			}
		}
		return nil
	})
	if err != nil || len(list) == 0 {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range list {
			list[i].places = s.lookUp(ctx, list[i].tg.Space, list[i].tg.around, defs)
		}
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
	}
	return s.Tracer.Do(func() error {
		for _, k := range list {
			k.tg.found = k.places
		}
		return nil
	})
}

// fewPlaces is the number of a definition's places for which it is compiled beforehand. The first
// ones take the longest, because debug information is read for them.
const fewPlaces = 8

// lookUp reads into the files' caches what definitions need, and returns their places. It is safe for
// concurrent use.
func (s *Engine) lookUp(ctx context.Context, space *symbols.Space, around *survey.Around, defs []*fetch.Def) foundPlaces {
	out := foundPlaces{modules: space.Modules(), of: map[*fetch.Def][]symbols.Site{}}
	seen, newer := map[*symbols.Module]bool{}, map[string]bool{}
	for _, d := range defs {
		resolve := space.Resolve
		if mayBeInlined(d) {
			resolve = space.ResolveAhead
		}
		tidy := func() {}
		if d.Place.IsGlob() {
			tidy = litterTo(globRoom)
		}
		places, err := resolve(d.Place)
		tidy()
		if err != nil || ctx.Err() != nil {
			continue
		}
		out.of[d] = places
		if d.Place.Kind == symbols.PlaceLine && len(places) > 0 {
			if file := space.NewerSource(places[0]); file != "" && !newer[file] {
				newer[file] = true
				s.Warnf("%s was written to after %s was built: line numbers may mean other code", file, places[0].Module.Name)
			}
		}
		for i, w := range slices.Concat(places, inlined(space, d, places)) {
			if ctx.Err() != nil {
				return out
			}
			if w.Module == nil || w.Module.File == nil {
				continue
			}
			if i < fewPlaces {
				_, _ = d.Compile(&assess.Env{Space: space, Text: s.Opts.MaxText, Site: w})
			}
			if seen[w.Module] {
				continue
			}
			seen[w.Module] = true
			around.Scan(w.Module)
			if f, err := assess.Decode(w.Module.File, w.Func, survey.Start(w)); err == nil && w.Module.File.IsGo() {
				golang := f.GoCode(s.golang.Of(w.Module.File))
				_, _ = golang.Stack(0)
			}
		}
		if d.Kind == fetch.Return {
			_ = s.unwinds.In(space)
		}
	}
	return out
}
