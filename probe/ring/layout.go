// Package ring is the memory file of a probed process: its layout, how hits are written into
// its rings, and how they are read back in order of time.
//
// One file (a memfd) holds everything of a live session: probes, flags, counters, rings. It is
// mapped shared in the target and in the tracer. Any other process that may ptrace the target
// reads it through /proc. This package knows offsets and bytes only. It maps nothing and
// touches no process.
//
// # Who trusts whom
//
// The detours in the target trust nothing that a reader writes: a wild tail makes a ring look
// full, and hits are dropped and counted. A reader trusts nothing that the target writes:
// hostile contents give ErrCorrupt or lost records, never a panic, an endless loop or an access
// outside the file.
//
// All numbers are little-endian. Offsets are bytes from the start of the file unless said
// otherwise. Words that several CPUs write are 64-byte aligned.
package ring

import (
	"fmt"
	"math/bits"
)

// MemfdName is the name passed to memfd_create, so that /proc/PID/maps shows "/memfd:kprobe
// (deleted)".
const MemfdName = "kprobe"

// Magic starts the file. It is written last when a file is set up, so a file that has it is
// complete.
const Magic = "KPROBE\x00\x00"

// Version is the layout's version. A reader also takes the version before, whose sites and probes have no
// groups, and refuses any other.
const (
	Version       = 10
	versionBefore = 9
)

// PageSize is the granule of every section.
const PageSize = 4096

// The area of one CPU, in bytes from its start. The areas of all CPUs follow each other at a
// distance of 1<<Layout.AreaShift. A detour finds its own by
//
//	rdpid rsi; and esi, Layout.CPUMask; shl rsi, AreaShift; add rsi, PerCPU's address
//
// The mask makes any answer of rdpid safe.
//
// Each CPU has two rings. Anybody may write to the first, whose head is moved by lock cmpxchg.
// The second is for threads that reserve in a restartable sequence (rseq(2)): its head is moved
// without a lock by a thread that runs on that very CPU, which no other writer of the ring can
// interrupt. Once a writer has its room, it does the same in both. The words of the second ring
// are SeqOff after those of the first.
const (
	HeadOff = 0  // u64, bytes ever reserved; writers
	DataPtr = 16 // u64, address in the target of the ring's data; set once
	MaskOff = 24 // u64, ring size - 1; set once
	TailOff = 64 // u64, bytes ever read and cleared; the reader
	SeqOff  = 128

	// CountersOff is where the counters start: the slot of probe id is at CountersOff +
	// id*CounterSize.
	CountersOff = 4096
	CounterSize = 56

	// The counters in a slot, u64 each. They are changed by lock inc or lock add, because a
	// thread may migrate between reading its CPU and counting. The two at CounterSeq are
	// different: they are those of restartable sequences, which count as they reserve.
	//
	// A hit of an enabled probe is a record, or is counted under one of four:
	// CounterFiltered, the filter said no; CounterLost, the ring was full; CounterLimited,
	// its event has had as many as it may have in that second (control.go); CounterHits,
	// the probe leaves no records. So a hit costs one operation, in the ring or here, never
	// two. CounterMissed (nmissed) is for calls without a free return instance, or
	// reentered ones; such a call is no hit.
	CounterHits     = 0
	CounterFiltered = 8
	CounterLost     = 16
	CounterMissed   = 24

	// What is to be added to CounterHits and CounterFiltered for those of sequences.
	CounterSeq = 32

	CounterLimited = 48
)

// The area after the last CPU's belongs to the reader, which counts records there. ReaderSeen
// are those that were found finished in a ring, whether or not they were taken out yet.
// ReaderGiven are those of them that were passed on. ReaderLost are those given up. Seen is
// updated with each look at the rings and by Reader.Look.
const (
	ReaderGiven = 0
	ReaderSeen  = 8
	ReaderLost  = 16
)

// Flags of a probe, one u32 at Flags' offset + 4*id, read by its detour. The first byte is for
// whoever switches probes on and off, the rest for the session: nobody needs to change a byte
// that another writes.
const (
	FlagEnabled   = 1 << 0  // hits are taken; 0 is [DISABLED]
	FlagGone      = 1 << 8  // its code is unmapped: [GONE]
	FlagOptimized = 1 << 9  // a jump, no trap: [OPTIMIZED]
	FlagReturn    = 1 << 10 // a return probe
	FlagCountOnly = 1 << 11 // leaves no records
)

// SeqCPUs is the offset, from Flags on, of the number of CPUs (u32) whose second rings and
// counters are in use. CPUs from that number on have no sequences. The tracer sets it to
// Layout.CPUs when it knows that the program's threads have rseq areas, and to 0 before the
// first instruction of a task in the program's memory that could take another task's area for
// its own.
const SeqCPUs = 0

// Section is a range of the file.
type Section struct {
	Off, Size int64
}

// End is the offset after the section.
func (s Section) End() int64 { return s.Off + s.Size }

// Layout says where everything is. It follows from Params alone. A file states its sections in
// its directory.
type Layout struct {
	CPUs      int // areas of CPUs, a power of two
	CPUMask   uint32
	MaxProbes int
	Rows      int // of bins
	RingSize  int64
	AreaShift uint8 // log2 of an area's size
	Overwrite bool
	Spare     bool
	Size      int64 // of the whole file. Most of it is never touched: it is sparse

	Header    Section // the header and the directory
	Flags     Section // u32 per id
	Probes    Section // ProbeSize per id: see Probe
	Sites     Section // SiteSize each: see Site
	Maps      Section // MapSize each: see Map
	Mailbox   Section // requests of other kprobes to the session's
	Fallback  Section // site → copy, the format is probe/detour's
	Instances Section // return instances, the format is probe/detour's
	PerCPU    Section // Areas()+1 areas of 1<<AreaShift; the last is the reader's
	Rings     Section // data of each CPU's first ring, then of each one's second, at a distance of RingSize+Slack
	Book      Section // what a reader must know of probes and process, the format is probe/book's
	Control   Section // what detours look at besides flags (control.go)
	Code      Section // code; mapped in pieces where Maps says
}

// New lays a file out.
func New(p Params) (*Layout, error) {
	p = p.complete()
	switch {
	case p.CPUs < 1 || p.CPUs > MaxCPUs:
		return nil, fmt.Errorf("%w: %d CPUs", ErrParams, p.CPUs)
	case p.MaxProbes < 1 || p.MaxProbes > MaxID:
		return nil, fmt.Errorf("%w: %d probes", ErrParams, p.MaxProbes)
	case p.Rows < 0 || p.Rows > MaxRows:
		return nil, fmt.Errorf("%w: %d rows of bins", ErrParams, p.Rows)
	case p.RingSize < MinRingSize || p.RingSize > MaxRingSize || p.RingSize&(p.RingSize-1) != 0:
		return nil, fmt.Errorf("%w: ring of %d bytes", ErrParams, p.RingSize)
	case p.Overwrite && p.RingSize < MinOverwrite:
		return nil, fmt.Errorf("%w: ring of %d bytes, to be overwritten", ErrParams, p.RingSize)
	case p.Fallback < 0 || p.Instances < 0 || p.Code < 0 || p.MaxMaps < 1 ||
		p.Sites < 1 || p.Sites > 1<<24 || p.Book < 0 || p.Book > MaxBook || p.Fallback > 1<<32 || p.Instances > 1<<36 || p.Code > 1<<36 || p.MaxMaps > 1<<24:
		return nil, fmt.Errorf("%w: section sizes", ErrParams)
	}
	l := &Layout{
		CPUs:      areas(p.CPUs),
		MaxProbes: p.MaxProbes,
		Rows:      p.Rows,
		RingSize:  int64(p.RingSize),
		Overwrite: p.Overwrite,
		Spare:     p.Spare,
	}
	l.CPUMask = uint32(l.CPUs - 1)
	ids := int64(p.MaxProbes) + 1
	l.AreaShift = uint8(bits.Len64(uint64(l.areaEnd() - 1)))
	at := int64(0)
	for _, s := range []struct {
		sec  *Section
		size int64
	}{
		{&l.Header, PageSize},
		{&l.Flags, ids * 4},
		{&l.Probes, ids * ProbeSize},
		{&l.Sites, int64(p.Sites) * SiteSize},
		{&l.Maps, int64(p.MaxMaps) * MapSize},
		{&l.Mailbox, MailboxSize},
		{&l.Fallback, int64(p.Fallback)},
		{&l.Instances, int64(p.Instances)},
		{&l.PerCPU, int64(l.Areas()+1) << l.AreaShift},
		{&l.Rings, int64(l.NumRings()) * l.RingStride()},
		{&l.Book, int64(p.Book)},
		{&l.Control, l.controlSize()},
		{&l.Code, int64(p.Code)},
	} {
		size := (s.size + PageSize - 1) &^ (PageSize - 1)
		*s.sec = Section{at, size}
		at += size
	}
	l.Size = at
	return l, nil
}

// areas is how many areas there are for CPUs: a power of two.
func areas(cpus int) int { return 1 << bits.Len(uint(cpus-1)) }

// Areas is the number of CPU areas. Area n is that of CPU n or, from CPUs on, the other area of
// CPU n-CPUs.
func (l *Layout) Areas() int {
	if l.Spare {
		return 2 * l.CPUs
	}
	return l.CPUs
}

// NumRings is the number of rings. Ring n is the first of area n or, from Areas() on, the
// second of area n-Areas().
func (l *Layout) NumRings() int { return 2 * l.Areas() }

// RingWord is the offset of a word (HeadOff …) of a ring.
func (l *Layout) RingWord(n int, word int64) int64 {
	return l.Area(n%l.Areas()) + int64(n/l.Areas())*SeqOff + word
}

// RingStride is the distance between the data of two rings.
func (l *Layout) RingStride() int64 { return l.RingSize + Slack }

// Area is the offset of a CPU's area; Area(l.Areas()) is the reader's.
func (l *Layout) Area(cpu int) int64 { return l.PerCPU.Off + int64(cpu)<<l.AreaShift }

// Counter is the offset of a counter (CounterHits …) of a probe on a CPU;
// cpu = l.Areas() is the reader's (ReaderSeen …).
func (l *Layout) Counter(cpu int, id uint32, counter int) int64 {
	return l.Area(cpu) + CountersOff + int64(id)*CounterSize + int64(counter)
}

// TallyOff is the offset, in a CPU's area, of the hits that restartable sequences of the tally
// have counted, instead of in CounterHits: a u64 for each probe, by its number. They lie side
// by side, because those of thousands of probes are counted.
func (l *Layout) TallyOff() int64 { return (l.RowOff(l.Rows) + 63) &^ 63 }

func (l *Layout) tallyEnd() int64 { return l.TallyOff() + (int64(l.MaxProbes)+1)*8 }

// tallied is the offset of a probe's word there, on a CPU.
func (l *Layout) tallied(cpu int, id uint32) int64 { return l.Area(cpu) + l.TallyOff() + int64(id)*8 }

// RingData is the offset of the data of a ring.
func (l *Layout) RingData(n int) int64 { return l.Rings.Off + int64(n)*l.RingStride() }

// Flag is the offset of a probe's flags.
func (l *Layout) Flag(id uint32) int64 { return l.Flags.Off + int64(id)*4 }

// Probe is the offset of a probe's descriptor.
func (l *Layout) Probe(id uint32) int64 { return l.Probes.Off + int64(id)*ProbeSize }

// Site is the offset of an entry of the table of sites.
func (l *Layout) Site(n int) int64 { return l.Sites.Off + int64(n)*SiteSize }

// Map is the offset of an entry of the table of code mappings.
func (l *Layout) Map(n int) int64 { return l.Maps.Off + int64(n)*MapSize }
