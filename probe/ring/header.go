package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrCorrupt is wrapped by errors about contents that no session writes.
var ErrCorrupt = errors.New("corrupt ring file")

// ErrNotReady says that a file has no header yet: its session is being set up.
var ErrNotReady = errors.New("the ring file is being set up")

// ErrVersion is wrapped by errors about a file of another version of kprobe.
var ErrVersion = errors.New("ring file of another version")

// Header is what the file's first page says:
//
//	+0   Magic; stored last
//	+8   u32 Version
//	+12  u32 number of directory entries
//	+16  u64 Generation
//	+24  u64 size of the file
//	+32  u64 Base
//	+40  u32 Tracer, +44 u32 Target
//	+48  u64 TracerStart
//	+56  u64 Created
//	+64  u32 CPUs, +68 u32 MaxProbes
//	+72  u64 ring size
//	+80  u32 AreaShift
//	+84  u32 Probes, +88 u32 Sites, +92 u32 Maps
//	+96  u64, +104 i64, +112 u64: Time, as counter, ns and ns per tick/2^32
//	+120 u32 rows of bins
//	+124 u32 Mode
//	+256 the directory: u32 section, u32 0, u64 offset, u64 size, each 24 bytes
//	+ClockOff the clock of detours
//
// Everything up to +72 is set once; the rest is changed in place.
type Header struct {
	Generation  uint64 // changes whenever probes come or go
	Base        uint64 // where the file is mapped in the target, up to Layout.Code
	Tracer      uint32 // pid that reads the rings, in the target's view; 0 is nobody
	TracerStart uint64 // its start time, field 22 of /proc/PID/stat: pids are reused
	Target      uint32
	Created     uint64 // CLOCK_MONOTONIC, ns
	Probes      uint32 // ids in use are 1 … Probes
	Sites       uint32 // entries in use are 0 … Sites-1
	Maps        uint32
	// Time is a moment on both clocks and Rate the ns per tick in 1/2^32;
	// Rate is 0 until the tracer knows it.
	Time Sample
	Rate uint64
	Mode uint32 // ModeOverwrite, ModeDetached, ModeSpare
}

// The bits of a file's mode.
const (
	// ModeOverwrite says that the newest records overwrite the oldest. It is set once.
	ModeOverwrite = 1 << 0
	// ModeDetached says that the probes are to stay without a kprobe: nobody removes them
	// because their tracer is gone.
	ModeDetached = 1 << 1
	// ModeSpare says that there are areas and rings for snapshots (swap.go). It is set
	// once.
	ModeSpare = 1 << 2
)

// Offsets of the header's words that are changed in place.
const (
	GenerationOff  = 16
	TracerOff      = 40
	TracerStartOff = 48
	ProbesOff      = 84
	SitesOff       = 88
	MapsOff        = 92
	TimeAt         = 96
	ModeOff        = 124
	directoryOff   = 256
	directoryEntry = 24
)

// sections lists a layout's sections in the order of their numbers in the
// directory, from 1 on. The numbers are part of the format.
func (l *Layout) sections() []*Section {
	return []*Section{
		&l.Header, &l.Flags, &l.Probes, &l.Sites, &l.Maps, &l.Mailbox,
		&l.Fallback, &l.Instances, &l.PerCPU, &l.Rings, &l.Book, &l.Control, &l.Code,
	}
}

// Encode returns the first page of a file. It includes the magic: whoever writes the page into
// a file that others can see must write bytes 8 and on first.
func (h *Header) Encode(l *Layout) []byte {
	b := make([]byte, PageSize)
	le := binary.LittleEndian
	secs := l.sections()
	copy(b, Magic)
	le.PutUint32(b[8:], Version)
	le.PutUint32(b[12:], uint32(len(secs)))
	le.PutUint64(b[GenerationOff:], h.Generation)
	le.PutUint64(b[24:], uint64(l.Size))
	le.PutUint64(b[32:], h.Base)
	le.PutUint32(b[TracerOff:], h.Tracer)
	le.PutUint32(b[44:], h.Target)
	le.PutUint64(b[TracerStartOff:], h.TracerStart)
	le.PutUint64(b[56:], h.Created)
	le.PutUint32(b[64:], uint32(l.CPUs))
	le.PutUint32(b[68:], uint32(l.MaxProbes))
	le.PutUint64(b[72:], uint64(l.RingSize))
	le.PutUint32(b[80:], uint32(l.AreaShift))
	le.PutUint32(b[ProbesOff:], h.Probes)
	le.PutUint32(b[SitesOff:], h.Sites)
	le.PutUint32(b[MapsOff:], h.Maps)
	le.PutUint64(b[96:], h.Time.TSC)
	le.PutUint64(b[104:], uint64(h.Time.NS))
	le.PutUint64(b[112:], h.Rate)
	le.PutUint32(b[120:], uint32(l.Rows))
	mode := h.Mode &^ (ModeOverwrite | ModeSpare)
	if l.Overwrite {
		mode |= ModeOverwrite
	}
	if l.Spare {
		mode |= ModeSpare
	}
	le.PutUint32(b[ModeOff:], mode)
	for i, s := range secs {
		e := b[directoryOff+i*directoryEntry:]
		le.PutUint32(e, uint32(i+1))
		le.PutUint64(e[8:], uint64(s.Off))
		le.PutUint64(e[16:], uint64(s.Size))
	}
	return b
}

// DecodeHeader decodes a file's first page and checks its consistency: if there is no error, it
// is safe to compute offsets from the result. The error is ErrNotReady if the magic isn't there
// yet.
func DecodeHeader(b []byte) (*Header, *Layout, error) {
	if len(b) < PageSize {
		return nil, nil, fmt.Errorf("%w: header of %d bytes", ErrCorrupt, len(b))
	}
	le := binary.LittleEndian
	if le.Uint64(b) == 0 {
		return nil, nil, ErrNotReady
	}
	if string(b[:len(Magic)]) != Magic {
		return nil, nil, fmt.Errorf("%w: no magic", ErrCorrupt)
	}
	if v := le.Uint32(b[8:]); v != Version && v != versionBefore {
		return nil, nil, fmt.Errorf("%w: %d, this is %d", ErrVersion, v, Version)
	}
	h := &Header{
		Generation:  le.Uint64(b[GenerationOff:]),
		Base:        le.Uint64(b[32:]),
		Tracer:      le.Uint32(b[TracerOff:]),
		Target:      le.Uint32(b[44:]),
		TracerStart: le.Uint64(b[TracerStartOff:]),
		Created:     le.Uint64(b[56:]),
		Probes:      le.Uint32(b[ProbesOff:]),
		Sites:       le.Uint32(b[SitesOff:]),
		Maps:        le.Uint32(b[MapsOff:]),
		Time:        Sample{le.Uint64(b[96:]), int64(le.Uint64(b[104:]))},
		Rate:        le.Uint64(b[112:]),
		Mode:        le.Uint32(b[ModeOff:]),
	}
	l, err := decodeLayout(b)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case int64(h.Probes) > int64(l.MaxProbes):
		err = fmt.Errorf("%w: %d probes of %d", ErrCorrupt, h.Probes, l.MaxProbes)
	case int64(h.Sites)*SiteSize > l.Sites.Size:
		err = fmt.Errorf("%w: %d sites", ErrCorrupt, h.Sites)
	case int64(h.Maps)*MapSize > l.Maps.Size:
		err = fmt.Errorf("%w: %d code mappings", ErrCorrupt, h.Maps)
	}
	if err != nil {
		return nil, nil, err
	}
	return h, l, nil
}

// decodeLayout computes the layout of the stated parameters and requires that the directory
// says the same: a version has one layout.
func decodeLayout(b []byte) (*Layout, error) {
	le := binary.LittleEndian
	size := func(n int) int {
		return int(le.Uint64(b[directoryOff+(n-1)*directoryEntry+16:]) & (1<<40 - 1))
	}
	const sites, maps, fallback, instances, book, code = 4, 5, 7, 8, 11, 13 // numbers in the directory
	ringSize := le.Uint64(b[72:])
	if ringSize > MaxRingSize {
		return nil, fmt.Errorf("%w: ring of %d bytes", ErrCorrupt, ringSize)
	}
	p := Params{
		CPUs:      int(le.Uint32(b[64:])),
		MaxProbes: int(le.Uint32(b[68:])),
		Sites:     size(sites) / SiteSize,
		Rows:      int(le.Uint32(b[120:])),
		RingSize:  int(ringSize),
		MaxMaps:   size(maps) / MapSize,
		Fallback:  size(fallback),
		Instances: size(instances),
		Code:      size(code),
		Book:      size(book),
		Overwrite: le.Uint32(b[ModeOff:])&ModeOverwrite != 0,
		Spare:     le.Uint32(b[ModeOff:])&ModeSpare != 0,
	}
	l, err := New(p)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	secs := l.sections()
	bad := int(le.Uint32(b[12:])) != len(secs) || le.Uint64(b[24:]) != uint64(l.Size) ||
		int(le.Uint32(b[64:])) != l.CPUs || le.Uint32(b[80:]) != uint32(l.AreaShift)
	for i, s := range secs {
		e := b[directoryOff+i*directoryEntry:]
		bad = bad || le.Uint32(e) != uint32(i+1) ||
			le.Uint64(e[8:]) != uint64(s.Off) || le.Uint64(e[16:]) != uint64(s.Size)
	}
	if bad {
		return nil, fmt.Errorf("%w: the directory contradicts the header", ErrCorrupt)
	}
	return l, nil
}
