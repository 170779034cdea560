package area

import (
	"errors"
	"fmt"

	"kprobe/probe/fallbacks"
	"kprobe/probe/memory"
	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Open finds another session's area in an address space by its memory file, which it reads
// through the target's memory. It returns nil if nothing was written to the file yet. For known,
// which may be nil, see recoverOne.
func Open(p *tracee.Process, m *symbols.Mapping, known *journal) (*Area, error) {
	if known == nil {
		known = &journal{}
	}
	file, h, err := memory.Open(p, m)
	if err != nil || file == nil {
		return nil, err
	}
	a := &Area{Proc: p, found: true, File: file, Journal: memory.OpenJournal(file, h), Fallbacks: fallbacks.New(p)}
	if _, err := a.journalled(); err != nil {
		return nil, fmt.Errorf("read the sites of an earlier kprobe: %w", err)
	}
	maps, err := a.findArenas(known.maps)
	if err != nil {
		return nil, err
	}
	a.padding, a.pools = paddingOf(p.PID()), known.pools
	return a, a.findFallbacks(maps, known)
}

// findArenas finds the arenas that the journal lists, and those of known, as they are mapped now.
func (a *Area) findArenas(known []ring.Map) (maps []symbols.Mapping, err error) {
	h, layout, err := ring.ReadHeader(a.File, memory.PossibleCPUs())
	if err != nil {
		return nil, fmt.Errorf("read the mappings of an earlier kprobe: %w", err)
	}
	listed, err := ring.ReadMaps(a.File, h, layout)
	if err != nil {
		return nil, fmt.Errorf("read the mappings of an earlier kprobe: %w", err)
	}
	if maps, err = symbols.ReadMaps(a.Proc.PID()); err != nil {
		return nil, err
	}
	a.Code = memory.NewArenas(a.Proc, a.Journal)
	there := map[uint64]bool{}
	for _, c := range append(listed, known...) {
		if !there[c.Addr] && memory.IsArena(c, maps, a.Proc) {
			there[c.Addr] = true
			a.Code.Find(c)
		}
	}
	return maps, a.findScratch()
}

// paddingOf gives the address of injected code that lies in a process's padding, 0 if there is none.
func paddingOf(pid int) symbols.Addr {
	at, _, _ := tracee.Injected(pid)
	return at
}

// findScratch reuses the scratch memory that the header names.
func (a *Area) findScratch() error {
	at, err := a.File.Get64(a.File.Layout.Header.Off + memory.HeaderScratch)
	if err != nil {
		return err
	}
	a.Scratch = a.Code.Take(symbols.Addr(at), scratchSize)
	return nil
}

// findFallbacks finds the fallback handlers that the header names or has named.
func (a *Area) findFallbacks(maps []symbols.Mapping, known *journal) error {
	h := a.File.Layout.Header.Off
	code, err := a.File.Get64(h + memory.HeaderFallback)
	if err != nil || code == 0 && known.fallback == 0 {
		return err
	}
	data, err := a.File.Get64(h + memory.HeaderFallbackData)
	if err != nil {
		return err
	}
	if code == 0 {
		code, data = known.fallback, known.fallbackData
	}
	codeThere, _ := memory.AnonymousIn(maps, symbols.Addr(code), memory.PageSize)
	dataThere, _ := memory.AnonymousIn(maps, symbols.Addr(data), memory.PageSize)
	if !codeThere || !dataThere {
		return errors.New("the fallback handlers of the earlier kprobe are not where its journal says")
	}
	if a.Code.Holds(symbols.Addr(code)) == nil {
		a.Fallbacks.Adopted() // they were left by a kprobe before that one
	}
	return a.Fallbacks.Find(symbols.Addr(code), symbols.Addr(data))
}

// journalled reads the text writes in the journal.
func (a *Area) journalled() ([]ring.Site, error) {
	if !a.found && a.Journal != nil { // a forked child's area (Copied) has none
		return a.Journal.Sites()
	}
	h, layout, err := ring.ReadHeader(a.File, memory.PossibleCPUs())
	if err != nil {
		return nil, err
	}
	return ring.ReadSites(a.File, h, layout)
}
