package probe

import (
	"encoding/binary"
	"fmt"
	"os"

	"kprobe/internal/procfs"
	"kprobe/probe/plan"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// journal is the list of patched sites and of mapped code in the memory file,
// from which a later kprobe takes the patches out when this one was killed. An
// entry is whole before the site is written, and goes after it was restored:
// the address is stored last when an entry is made, first when it goes.
type journal struct {
	file *memfile
	head ring.Header
	free []int
	next int
	maps int
	// mapsFree are entries of maps that can be used anew.
	mapsFree []int
}

// Words that the session keeps in the header's page behind ring's directory.
const (
	headerScratch      = 3072 // u64 address of the scratch memory, a page of code first; 0: none is ready
	headerFallback     = 3088 // u64 address of the fallback handlers' code, 0: none was laid
	headerPools        = 3096 // u64 address of the return instances laid last (poolsHead), 0: none
	headerFallbackData = 3104 // u64 address of the fallback handlers' data
	headerSteps        = 3112 // u64 threads that the tracer lets execute one instruction
	headerSemaphores   = 3120 // u64 address of the page of raised semaphores that was laid last, 0: none
)

// open writes the header. The magic goes last.
func (j *journal) open(target int) {
	j.head = ring.Header{
		Generation: 1, Base: uint64(j.file.base),
		Tracer: uint32(os.Getpid()), TracerStart: procfs.StartTime(os.Getpid()),
		Target: uint32(target), Created: newClock().now(),
	}
	page := j.head.Encode(j.file.layout)
	h := j.file.layout.Header.Off
	copy(j.file.mem[h+8:], page[8:])
	j.file.store64(h, binary.LittleEndian.Uint64(page))
}

// counts stores how many entries are in use.
func (j *journal) counts() {
	h := j.file.layout.Header.Off
	j.head.Sites, j.head.Maps = uint32(j.next), uint32(j.maps)
	j.file.store32(h+ring.SitesOff, j.head.Sites)
	j.file.store32(h+ring.MapsOff, j.head.Maps)
}

// coming notes an arena that is about to be mapped, in the states of mapping.go.
func (j *journal) coming(p *arena) error {
	if len(j.mapsFree) == 0 && j.maps >= int(j.file.layout.Maps.Size/ring.MapSize) {
		return fmt.Errorf("more than %d pieces of memory", j.maps)
	}
	m := ring.Map{Addr: uint64(p.start), Size: p.size}
	p.entry = j.maps
	if k := len(j.mapsFree); k > 0 {
		p.entry = j.mapsFree[k-1]
		j.mapsFree = j.mapsFree[:k-1]
	} else {
		j.maps++
	}
	j.put(j.file.layout.Map(p.entry), m.Encode())
	j.counts()
	return nil
}

// there notes that an arena is mapped.
func (j *journal) there(p *arena) error {
	return j.file.set64(j.file.layout.Map(p.entry)+ring.MapUsed, p.size)
}

// going notes that an arena is about to be unmapped.
func (j *journal) going(p *arena) error {
	return j.file.set64(j.file.layout.Map(p.entry)+ring.MapUsed, 0)
}

// gone forgets a piece.
func (j *journal) gone(p *arena) error {
	j.mapsFree = append(j.mapsFree, p.entry)
	return j.file.set64(j.file.layout.Map(p.entry), 0)
}

// put stores an entry, its first word last.
func (j *journal) put(at int64, b []byte) {
	copy(j.file.mem[at+8:], b[8:])
	j.file.store64(at, binary.LittleEndian.Uint64(b))
}

// add notes a breakpoint that is about to be written, and returns its number.
func (j *journal) add(site, slot symbols.Addr, code []byte) (int, error) {
	before := code[:min(len(code), maxInsn)]
	after := append([]byte{breakpoint}, before[1:]...)
	return j.site(&ring.Site{Addr: uint64(site), Tactic: uint16(plan.Breakpoint), Copy: uint64(slot), Before: before, After: after})
}

// change notes a write of a jump that is about to be made.
func (j *journal) change(w plan.Write, before []byte, detour uint64, tactic uint16) (int, error) {
	return j.site(&ring.Site{Addr: w.At, Tactic: tactic, Detour: detour, Before: before, After: w.Bytes})
}

func (j *journal) site(s *ring.Site) (int, error) {
	b, err := s.Encode()
	if err != nil {
		return -1, err
	}
	n := j.next
	if k := len(j.free); k > 0 {
		n = j.free[k-1]
		j.free = j.free[:k-1]
	} else if n >= int(j.file.layout.Sites.Size/ring.SiteSize) {
		return -1, fmt.Errorf("more than %d changes in a process", n)
	} else {
		j.next++
	}
	j.put(j.file.layout.Site(n), b)
	j.counts()
	return n, nil
}

// remove forgets a site that was restored.
func (j *journal) remove(n int) {
	if n < 0 {
		return
	}
	j.file.store64(j.file.layout.Site(n), 0)
	j.free = append(j.free, n)
}
