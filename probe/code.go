package probe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// piece is memory that was mapped into the target (mapping.go): copies of
// instructions, detours, the net, landings, which are readable and executable and
// never writable for the target, as kprobe writes them as it writes text; and
// what the target writes to, return instances and scratch memory.
type piece struct {
	start symbols.Addr
	size  uint64
	used  uint64
	free  []symbols.Addr // slots given back
	// detours says that detours lie here, and no copies of breakpoints'.
	detours bool
	entry   int // in the journal
}

func (p *piece) end() symbols.Addr { return p.start + symbols.Addr(p.size) }

// near reports whether every byte of the piece is within reach of a.
func (p *piece) near(a symbols.Addr) bool {
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
	// pieceSize is the least that is mapped at once: 1024 slots.
	pieceSize = 64 << 10
	// pieceTries bounds how many places are tried when the target maps memory
	// at the same time.
	pieceTries = 64
	// piecePause is waited when all that seemed free was taken.
	piecePause = 5 * time.Millisecond
)

// code is the executable memory of one target, in pieces near the modules
// that are probed.
type code struct {
	proc   *tracee.Process
	pieces []*piece
	// journal is where pieces are noted.
	journal *journal
}

// holds returns the piece that contains a, or nil.
func (c *code) holds(a symbols.Addr) *piece {
	for _, p := range c.pieces {
		if a >= p.start && a < p.end() {
			return p
		}
	}
	return nil
}

// reserve makes sure that n slots can be had near a without another system
// call in the target.
func (c *code) reserve(ctx context.Context, a symbols.Addr, n int) error {
	have := uint64(0)
	for _, p := range c.pieces {
		if p.near(a) {
			have += uint64(len(p.free)) + (p.size-p.used)/slotSize
		}
	}
	if have >= uint64(n) {
		return nil
	}
	size := max(pieceSize, (uint64(n)-have)*slotSize)
	_, err := c.add(ctx, a, (size+pageSize-1)&^uint64(pageSize-1))
	return err
}

// slot returns slotSize free bytes near a, mapping more if there are none.
func (c *code) slot(ctx context.Context, a symbols.Addr) (symbols.Addr, error) {
	for try := 0; try < 2; try++ {
		for _, p := range c.pieces {
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
func (c *code) add(ctx context.Context, a symbols.Addr, size uint64) (*piece, error) {
	p, err := c.mapNear(ctx, a, size)
	if err == nil {
		c.pieces = append(c.pieces, p)
	}
	return p, err
}

// mapNear maps a piece of size bytes within reach of a.
func (c *code) mapNear(ctx context.Context, a symbols.Addr, size uint64) (*piece, error) {
	tried := map[symbols.Addr]bool{}
	taken := 0
	for range pieceTries {
		maps, err := symbols.ReadMaps(c.proc.PID())
		if err != nil {
			return nil, err
		}
		at, ok := findGap(maps, a, a, size, tried)
		if !ok && len(tried) > 0 {
			// Each place was taken between the look and the call. Maybe not
			// for long.
			clear(tried)
			time.Sleep(piecePause)
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

// unmapAll gives the pieces back to the target but the one that starts at keep;
// no thread may be in one.
func (c *code) unmapAll(ctx context.Context, keep symbols.Addr) error {
	var errs []error
	for _, p := range c.pieces {
		if p.start != keep {
			errs = append(errs, c.unmap(ctx, p))
		}
	}
	c.pieces = nil
	return errors.Join(errs...)
}
