package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/probe/ring"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// Arena is memory that was mapped into the target (mapping.go). One for code holds copies
// of instructions, detours, the fallback handler or return trampolines: the target may
// read and execute it, and only kprobe writes it. One for data holds what the target
// writes to: return instances and scratch memory.
type Arena struct {
	Start symbols.Addr
	Size  uint64         // bytes
	Used  uint64         // bytes from the start on that were given out
	free  []symbols.Addr // slots given back
	// Detours says that detours lie here, and no copies of breakpoints'.
	Detours bool
	entry   int // in the journal
}

// End is the address behind the last byte.
func (p *Arena) End() symbols.Addr { return p.Start + symbols.Addr(p.Size) }

// near reports whether every byte of the arena is within reach of a.
func (p *Arena) near(a symbols.Addr) bool {
	return within(a, p.Start) && within(a, p.End())
}

func within(a, b symbols.Addr) bool {
	if a > b {
		a, b = b, a
	}
	return b-a <= Reach
}

const (
	// SlotSize, in bytes, holds any relocated instruction and its jump back.
	SlotSize = 64
	// arenaSize is the least that is mapped at once: 1024 slots.
	arenaSize = 64 << 10
	// arenaTries bounds how many places are tried when the target maps memory
	// at the same time.
	arenaTries = 64
	// arenaPause is waited when all that seemed free was taken.
	arenaPause = 5 * time.Millisecond
)

// Arenas are those for code of one target, near the modules that are probed. Those for
// data it maps and unmaps, and doesn't list, unless they are put into it.
type Arenas struct {
	proc   *tracee.Process
	arenas []*Arena // in order of address
	// journal is where arenas are noted.
	journal *Journal
}

// NewArenas is the memory of a process in which nothing is mapped yet.
func NewArenas(p *tracee.Process, j *Journal) *Arenas { return &Arenas{proc: p, journal: j} }

// In gives the same arenas as a child of fork has them, which are in no journal there.
func (c *Arenas) In(child *tracee.Process) *Arenas { return &Arenas{proc: child, arenas: c.arenas} }

// MoveTo has them be mapped and unmapped by another process that shares the memory.
func (c *Arenas) MoveTo(p *tracee.Process) { c.proc = p }

// All gives the arenas in order of address.
func (c *Arenas) All() []*Arena { return c.arenas }

// Find enters an arena of which another kprobe's journal tells.
func (c *Arenas) Find(m ring.Map) {
	c.Put(&Arena{Start: symbols.Addr(m.Addr), Size: m.Size, Used: m.Used, entry: m.Entry})
}

// Take takes the arena of a start and a size out of those for code; nil: there is none.
func (c *Arenas) Take(start symbols.Addr, size uint64) *Arena {
	p := c.Holds(start)
	if p == nil || p.Start != start || p.Size != size {
		return nil
	}
	c.Drop(p)
	return p
}

// Drop forgets an arena that is unmapped, or is looked after elsewhere.
func (c *Arenas) Drop(p *Arena) {
	c.arenas = slices.DeleteFunc(c.arenas, func(q *Arena) bool { return q == p })
}

// Holds returns the arena that contains a, or nil.
func (c *Arenas) Holds(a symbols.Addr) *Arena {
	i := c.after(a)
	if i > 0 && a < c.arenas[i-1].End() {
		return c.arenas[i-1]
	}
	return nil
}

// after is how many arenas start at a or before.
func (c *Arenas) after(a symbols.Addr) int {
	return sort.Search(len(c.arenas), func(i int) bool { return c.arenas[i].Start > a })
}

// Put enters an arena.
func (c *Arenas) Put(p *Arena) { c.arenas = slices.Insert(c.arenas, c.after(p.Start), p) }

// Reserve makes sure that n slots can be had near a without another system
// call in the target.
func (c *Arenas) Reserve(ctx context.Context, a symbols.Addr, n int) error {
	have := uint64(0)
	for _, p := range c.arenas {
		if p.near(a) {
			have += uint64(len(p.free)) + (p.Size-p.Used)/SlotSize
		}
	}
	if have >= uint64(n) {
		return nil
	}
	_, err := c.Add(ctx, a, CopiesSize(n-int(have)))
	return err
}

// CopiesSize is how many bytes are mapped at once for n copies.
func CopiesSize(n int) uint64 {
	return max(arenaSize, (uint64(n)*SlotSize+PageSize-1)&^uint64(PageSize-1))
}

// Slot returns SlotSize free bytes near a, mapping more if there are none.
func (c *Arenas) Slot(ctx context.Context, a symbols.Addr) (symbols.Addr, error) {
	for try := 0; try < 2; try++ {
		for _, p := range c.arenas {
			if !p.near(a) {
				continue
			}
			if n := len(p.free); n > 0 {
				s := p.free[n-1]
				p.free = p.free[:n-1]
				return s, nil
			}
			if p.Used+SlotSize <= p.Size {
				s := p.Start + symbols.Addr(p.Used)
				p.Used += SlotSize
				return s, nil
			}
		}
		if err := c.Reserve(ctx, a, 1); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("no room for a copy near %v", a)
}

// GiveBack returns a slot in which no thread can be any more.
func (c *Arenas) GiveBack(s symbols.Addr) {
	if p := c.Holds(s); p != nil {
		p.free = append(p.free, s)
	}
}

// Add maps an arena of size bytes within reach of a, for code.
func (c *Arenas) Add(ctx context.Context, a symbols.Addr, size uint64) (*Arena, error) {
	p, err := c.MapNear(ctx, a, size)
	if err == nil {
		c.Put(p)
	}
	return p, err
}

// MapNear maps an arena of size bytes within reach of a.
func (c *Arenas) MapNear(ctx context.Context, a symbols.Addr, size uint64) (*Arena, error) {
	tried := map[symbols.Addr]bool{}
	taken := 0
	for range arenaTries {
		maps, err := symbols.ReadMaps(c.proc.PID())
		if err != nil {
			return nil, err
		}
		at, ok := FindGap(maps, a, a, size, tried)
		if !ok && len(tried) > 0 {
			// Each place was taken between the look and the call. Maybe not
			// for long.
			clear(tried)
			time.Sleep(arenaPause)
			continue
		}
		if !ok {
			break
		}
		p, err := c.MapAt(ctx, at, size)
		if errors.Is(err, unix.EEXIST) {
			tried[at] = true
			taken++
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("map memory in the target: %w", err)
		}
		return p, nil
	}
	if taken > 0 {
		return nil, fmt.Errorf("no free addresses within 2 GiB of %v: %d places that were free were mapped before kprobe could", a, taken)
	}
	return nil, fmt.Errorf("no free addresses within 2 GiB of %v", a)
}

// UnmapAll gives the arenas back to the target; no thread may be in one. What can't
// be unmapped stays in the journal, and among the arenas.
func (c *Arenas) UnmapAll(ctx context.Context) error {
	var errs []error
	c.arenas = slices.DeleteFunc(c.arenas, func(p *Arena) bool {
		err := c.Unmap(ctx, p)
		errs = append(errs, err)
		return err == nil
	})
	return errors.Join(errs...)
}

// Keep has an arena stay, unused, until leaving tries to unmap it. p may be nil.
func (c *Arenas) Keep(p *Arena) {
	if p == nil {
		return
	}
	p.Used, p.free, p.Detours = p.Size, nil, false
	if !slices.Contains(c.arenas, p) {
		c.Put(p)
	}
}

// Release leaves an arena to the program: nobody will unmap it.
func (c *Arenas) Release(p *Arena) error {
	c.Drop(p)
	return c.journal.gone(p)
}
