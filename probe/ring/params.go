package ring

import (
	"errors"
	"math/bits"
)

// Params are what a layout depends on. Fields that are zero get the defaults.
type Params struct {
	CPUs      int // possible CPUs; 0 is 1. Rounded up to a power of two
	MaxProbes int // highest id; 0 is 65535
	Sites     int // entries of the table of sites; 0 is one an id
	Rows      int // rows of bins; 0 is none
	RingSize  int // bytes of one CPU's ring, a power of two; 0 is 2 MiB
	Fallback  int // bytes of the fallback handler's table (probe/detour); 0 is room for 300,000 sites, 16 MiB
	Instances int // bytes for return instances and return trampolines' cells; 0 is 16 MiB
	Code      int // bytes for code that is mapped executable; 0 is 64 MiB
	Book      int // bytes for what a reader must know besides; 0 is a page
	MaxMaps   int // most mappings of code; 0 is 16384
	// Overwrite lets the newest records overwrite the oldest (overwrite.go).
	Overwrite bool
	// Spare gives each CPU another area and other rings, for snapshots (swap.go).
	Spare bool
}

// The defaults and bounds of Params.
const (
	DefaultMaxProbes = 1<<16 - 1
	DefaultRingSize  = 2 << 20
	MinRingSize      = 2 * Slack
	MinOverwrite     = 4 * Slack // of rings whose records are overwritten
	MaxRingSize      = 1 << 30
	MaxCPUs          = 4096 // what rdpid's 12 bits can name
	MaxRows          = 1 << 14
	MaxBook          = 1 << 30
)

// ForProbes returns the params for a session that begins with n probes and has room for as many
// again: the defaults if these suffice, otherwise powers of two. There are never more than
// MaxID.
func ForProbes(n int) Params {
	if 2*n <= DefaultMaxProbes {
		return Params{}
	}
	ids := min(1<<bits.Len(uint(2*n)), MaxID+1)
	return Params{
		MaxProbes: ids - 1,
		Sites:     2 * ids, // places may take several, as functions whose exits are patched
		Fallback:  fallbackFor(ids),
		MaxMaps:   1 << 16,
	}
}

// Dumped changes the params to those of a file for n probes that makes a core dump of its process no larger than it must:
// the kernel writes all of it, and takes memory for what was never touched.
func (p *Params) Dumped(n int) {
	ids := max(1<<bits.Len(uint(2*n)), dumpedProbes+1)
	if ids > DefaultMaxProbes {
		return
	}
	book := p.Book
	p.fit(ids)
	p.Book = min(book, p.Book)
}

// dumpedProbes is the least that a file is laid out for that core dumps have.
const dumpedProbes = 1<<12 - 1

// Compact changes the params to those of a file for n probes that takes little room besides its
// rings, because all of it is allocated.
func (p *Params) Compact(n int) {
	ids := max(1<<bits.Len(uint(2*n)), minProbes+1)
	p.fit(ids)
	p.Rows, p.Instances, p.MaxMaps = 0, 64<<10, 1<<12
}

// fit lays out no more than so many numbers need.
func (p *Params) fit(ids int) {
	p.MaxProbes, p.Sites = ids-1, 4*ids
	p.Fallback, p.Book = fallbackFor(ids), 256<<10+4096*ids
}

// fallbackFor is the room, in bytes, of the fallback handler's table of two halves for so many numbers.
func fallbackFor(ids int) int {
	const slot = 16      // bytes
	const most = 1 << 24 // slots that a half may have
	return 2*slot*min(16*ids, most) + PageSize
}

// minProbes is the least that a file is laid out for.
const minProbes = 1<<8 - 1

// common reports whether a session lays files out for so many probes.
func common(maxProbes int) bool {
	return maxProbes >= minProbes && maxProbes <= MaxID && maxProbes&(maxProbes+1) == 0
}

// ErrParams is wrapped by errors of Params that can't be laid out.
var ErrParams = errors.New("ring parameters out of range")

func (p Params) complete() Params {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&p.CPUs, 1)
	def(&p.MaxProbes, DefaultMaxProbes)
	def(&p.Sites, p.MaxProbes+1)
	def(&p.RingSize, DefaultRingSize)
	def(&p.Fallback, 16<<20+PageSize) // two halves of 1<<19 slots
	def(&p.Instances, 16<<20)
	def(&p.Code, 64<<20)
	def(&p.MaxMaps, 1<<14)
	def(&p.Book, PageSize)
	return p
}
