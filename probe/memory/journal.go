package memory

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"kprobe/internal/procfs"
	"kprobe/probe/insn"
	"kprobe/probe/plan"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// Int3 is a breakpoint's byte.
const Int3 = 0xcc

// Journal is the list of patched sites and of mapped code in the memory file,
// from which a later kprobe takes the patches out when this one was killed. An
// entry is whole before the site is written, and goes after it was restored:
// the address is stored last when an entry is made, first when it goes.
type Journal struct {
	file *File
	head ring.Header
	free []int
	next int
	maps int
	// mapsFree are entries of maps that can be used anew.
	mapsFree []int
	sites    *Seldom
	entry    [ring.SiteSize]byte // the one that is being made
}

// Words that the session keeps in the header's page behind ring's directory.
const (
	HeaderScratch      = 3072 // u64 address of the scratch memory, a page of code first; 0: none is ready
	HeaderFallback     = 3088 // u64 address of the fallback handlers' code, 0: none was laid
	HeaderPools        = 3096 // u64 address of the return instances laid last, 0: none
	HeaderFallbackData = 3104 // u64 address of the fallback handlers' data
	HeaderSteps        = 3112 // u64 threads that the tracer lets execute one instruction
	HeaderGate         = 3128 // u64 address of the byte that is 0 where a recorder takes no hits, 0: there is none
	HeaderWatched      = 3152 // u64 1 while debug registers of threads may be set
	HeaderSemaphores   = 3120 // u64 address of the page of raised semaphores that was laid last, 0: none
	// HeaderHost is the u64 address of the memory file whose words the detours use (engine, host.go): its own, or that
	// of probes that were left before; 0: there are no such words.
	HeaderHost = 3160
	// HeaderTraced is whether a session that lets go of the process traces it, and why
	// (EncodeTraced).
	HeaderTraced = 3200
)

// PoolsHead is the size of the header before the pools of a batch: u64 address of the previous
// batch's pools, u64 size.
const PoolsHead = 64

// NewJournal is the journal of a session, in its memory file.
func NewJournal(file *File) *Journal {
	return &Journal{file: file, sites: file.Seldom(file.Layout.Sites, 1)}
}

// OpenJournal is that of another kprobe.
func OpenJournal(file *File, h *ring.Header) *Journal {
	return &Journal{file: file, head: *h, sites: file.Seldom(file.Layout.Sites, 1)}
}

// Pending is how many changes of the text it holds.
func (j *Journal) Pending() int { return j.next - len(j.free) }

// Open writes the header, for a process. The magic goes last.
func (j *Journal) Open(target int) {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // every kernel has it
	j.head = ring.Header{
		Generation: 1, Base: uint64(j.file.Base),
		Tracer: uint32(os.Getpid()), TracerStart: procfs.StartTime(os.Getpid()),
		Target: uint32(target), Created: uint64(now.Nano()),
	}
	page := j.head.Encode(j.file.Layout)
	h := j.file.Layout.Header.Off
	copy(j.file.Mem[h+8:], page[8:])
	j.file.Store64(h, binary.LittleEndian.Uint64(page))
}

// counts stores how many entries are in use.
func (j *Journal) counts() {
	h := j.file.Layout.Header.Off
	j.head.Sites, j.head.Maps = uint32(j.next), uint32(j.maps)
	j.file.Store32(h+ring.SitesOff, j.head.Sites)
	j.file.Store32(h+ring.MapsOff, j.head.Maps)
}

// Coming notes an arena that is about to be mapped, in the states of mapping.go.
func (j *Journal) Coming(p *Arena) error {
	if len(j.mapsFree) == 0 && j.maps >= int(j.file.Layout.Maps.Size/ring.MapSize) {
		return fmt.Errorf("more than %d arenas in a process", j.maps)
	}
	m := ring.Map{Addr: uint64(p.Start), Size: p.Size}
	p.entry = j.maps
	if k := len(j.mapsFree); k > 0 {
		p.entry = j.mapsFree[k-1]
		j.mapsFree = j.mapsFree[:k-1]
	} else {
		j.maps++
	}
	j.put(j.file.Layout.Map(p.entry), m.Encode())
	j.counts()
	return nil
}

// There notes that an arena is mapped.
func (j *Journal) There(p *Arena) error {
	return j.file.Set64(j.file.Layout.Map(p.entry)+ring.MapUsed, p.Size)
}

// Going notes that an arena is about to be unmapped.
func (j *Journal) Going(p *Arena) error {
	return j.file.Set64(j.file.Layout.Map(p.entry)+ring.MapUsed, 0)
}

// gone forgets an arena.
func (j *Journal) gone(p *Arena) error {
	j.mapsFree = append(j.mapsFree, p.entry)
	return j.file.Set64(j.file.Layout.Map(p.entry), 0)
}

// put stores an entry, its first word last.
func (j *Journal) put(at int64, b []byte) {
	copy(j.file.Mem[at+8:], b[8:])
	j.file.Store64(at, binary.LittleEndian.Uint64(b))
}

// Add notes a breakpoint that is about to be written, and returns its number.
func (j *Journal) Add(site, slot symbols.Addr, code []byte) (int, error) {
	before := code[:min(len(code), insn.MaxLen)]
	after := append([]byte{Int3}, before[1:]...)
	return j.site(&ring.Site{Addr: uint64(site), Tactic: uint16(plan.Breakpoint), Copy: uint64(slot), Before: before, After: after})
}

// Change notes a write of a jump that is about to be made. own are the bytes that belong to the jump.
func (j *Journal) Change(w plan.Write, before []byte, detour uint64, tactic uint16, own plan.Range) (int, error) {
	own.Hi = min(max(own.Lo, own.Hi), own.Lo+ring.MostOwned)
	return j.site(&ring.Site{Addr: w.At, Tactic: tactic, Detour: detour, Before: before, After: w.Bytes, Lo: own.Lo, Hi: own.Hi})
}

func (j *Journal) site(s *ring.Site) (int, error) {
	if err := s.EncodeTo(j.entry[:]); err != nil {
		return -1, err
	}
	n := j.next
	if k := len(j.free); k > 0 {
		n = j.free[k-1]
		j.free = j.free[:k-1]
	} else if n >= int(j.file.Layout.Sites.Size/ring.SiteSize) {
		return -1, fmt.Errorf("more than %d changes in a process", n)
	} else {
		j.next++
	}
	j.put(j.file.Layout.Site(n), j.entry[:])
	j.touched(n)
	j.counts()
	return n, nil
}

// Trim forgets the free entries behind the last one that is in use.
func (j *Journal) Trim() {
	slices.Sort(j.free)
	for n := len(j.free); n > 0 && j.free[n-1] == j.next-1; n = len(j.free) {
		j.free, j.next = j.free[:n-1], j.next-1
	}
	j.counts()
}

// Remove forgets a site that was restored.
func (j *Journal) Remove(n int) {
	if n < 0 {
		return
	}
	j.file.Store64(j.file.Layout.Site(n), 0)
	j.touched(n)
	j.free = append(j.free, n)
}

// Group stores the group of a change (ring.Site).
func (j *Journal) Group(n int, group uint32) {
	j.file.Store32(j.file.Layout.Site(n)+ring.SiteGroupOff, group)
	j.touched(n)
}

// Sites reads the entries that are in use, in their order, of a journal that NewJournal made: another kprobe's is read
// by ring.ReadSites. The entries of a hundred thousand changes that were undone cost nothing, although their pages may
// have to be mapped again (Seldom).
func (j *Journal) Sites() ([]ring.Site, error) {
	free := make([]bool, j.next)
	for _, n := range j.free {
		free[n] = true
	}
	sites := make([]ring.Site, 0, j.Pending())
	for n := range j.next {
		if free[n] {
			continue
		}
		at := j.file.Layout.Site(n)
		s, err := ring.DecodeSite(j.file.Mem[at : at+ring.SiteSize])
		j.touched(n)
		if err != nil {
			return nil, fmt.Errorf("site %d: %w", n, err)
		}
		s.Entry = n
		sites = append(sites, s)
	}
	return sites, nil
}

func (j *Journal) touched(n int) { j.sites.Touched(j.file.Layout.Site(n), ring.SiteSize) }
