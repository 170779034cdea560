package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// arena is memory that was mapped into the target (mapping.go): copies of
// instructions, detours, the fallback handler, return trampolines, which are readable and executable and
// never writable for the target, as kprobe writes them as it writes text; and
// what the target writes to, return instances and scratch memory.
type arena struct {
	start symbols.Addr
	size  uint64
	used  uint64
	free  []symbols.Addr // slots given back
	// detours says that detours lie here, and no copies of breakpoints'.
	detours bool
	entry   int // in the journal
}

func (p *arena) end() symbols.Addr { return p.start + symbols.Addr(p.size) }

// near reports whether every byte of the arena is within reach of a.
func (p *arena) near(a symbols.Addr) bool {
	return within(a, p.start) && within(a, p.end())
}

func within(a, b symbols.Addr) bool {
	if a > b {
		a, b = b, a
	}
	return b-a <= reach
}

const (
	// slotSize holds any relocated instruction and its jump back.
	slotSize = 64
	// arenaSize is the least that is mapped at once: 1024 slots.
	arenaSize = 64 << 10
	// arenaTries bounds how many places are tried when the target maps memory
	// at the same time.
	arenaTries = 64
	// arenaPause is waited when all that seemed free was taken.
	arenaPause = 5 * time.Millisecond
)

// code is the executable memory of one target, in pieces near the modules
// that are probed.
type code struct {
	proc   *tracee.Process
	arenas []*arena // in order of address
	// journal is where pieces are noted.
	journal *journal
}

// holds returns the arena that contains a, or nil.
func (c *code) holds(a symbols.Addr) *arena {
	i := c.after(a)
	if i > 0 && a < c.arenas[i-1].end() {
		return c.arenas[i-1]
	}
	return nil
}

// after is how many pieces start at a or before.
func (c *code) after(a symbols.Addr) int {
	return sort.Search(len(c.arenas), func(i int) bool { return c.arenas[i].start > a })
}

// put enters a piece.
func (c *code) put(p *arena) { c.arenas = slices.Insert(c.arenas, c.after(p.start), p) }

// reserve makes sure that n slots can be had near a without another system
// call in the target.
func (c *code) reserve(ctx context.Context, a symbols.Addr, n int) error {
	have := uint64(0)
	for _, p := range c.arenas {
		if p.near(a) {
			have += uint64(len(p.free)) + (p.size-p.used)/slotSize
		}
	}
	if have >= uint64(n) {
		return nil
	}
	size := max(arenaSize, (uint64(n)-have)*slotSize)
	_, err := c.add(ctx, a, (size+pageSize-1)&^uint64(pageSize-1))
	return err
}

// slot returns slotSize free bytes near a, mapping more if there are none.
func (c *code) slot(ctx context.Context, a symbols.Addr) (symbols.Addr, error) {
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
			if p.used+slotSize <= p.size {
				s := p.start + symbols.Addr(p.used)
				p.used += slotSize
				return s, nil
			}
		}
		if err := c.reserve(ctx, a, 1); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("no room for a copy near %v", a)
}

// giveBack returns a slot in which no thread can be any more.
func (c *code) giveBack(s symbols.Addr) {
	if p := c.holds(s); p != nil {
		p.free = append(p.free, s)
	}
}

// add maps a piece of size bytes within reach of a, for code.
func (c *code) add(ctx context.Context, a symbols.Addr, size uint64) (*arena, error) {
	p, err := c.mapNear(ctx, a, size)
	if err == nil {
		c.put(p)
	}
	return p, err
}

// mapNear maps a piece of size bytes within reach of a.
func (c *code) mapNear(ctx context.Context, a symbols.Addr, size uint64) (*arena, error) {
	tried := map[symbols.Addr]bool{}
	taken := 0
	for range arenaTries {
		maps, err := symbols.ReadMaps(c.proc.PID())
		if err != nil {
			return nil, err
		}
		at, ok := findGap(maps, a, a, size, tried)
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
		p, err := c.mapAt(ctx, at, size)
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

// unmapAll gives the pieces back to the target; no thread may be in one. What can't
// be unmapped stays in the journal, and among the pieces.
func (c *code) unmapAll(ctx context.Context) error {
	var errs []error
	c.arenas = slices.DeleteFunc(c.arenas, func(p *arena) bool {
		err := c.unmap(ctx, p)
		errs = append(errs, err)
		return err == nil
	})
	return errors.Join(errs...)
}

// keep has a piece stay, unused, until leaving tries to unmap it. p may be nil.
func (c *code) keep(p *arena) {
	if p == nil {
		return
	}
	p.used, p.free, p.detours = p.size, nil, false
	if !slices.Contains(c.arenas, p) {
		c.put(p)
	}
}

// release leaves a piece to the program: nobody will unmap it.
func (c *code) release(p *arena) error {
	c.arenas = slices.DeleteFunc(c.arenas, func(q *arena) bool { return q == p })
	return c.journal.gone(p)
}
