package ring

import (
	"encoding/binary"
	"fmt"
)

// ProbeSize is the size of a probe's descriptor, at Layout.Probe(id).
// NameSize is the longest event name, GROUP/EVENT, that one holds.
const (
	ProbeSize = 256
	NameSize  = ProbeSize - 64
	// TacticOff is where a descriptor's Tactic is: it changes in place.
	TacticOff = 4
	// GroupOff is where its Group is: it is known only when the probes are left alone.
	GroupOff = 16
)

// Probe is a probe's descriptor:
//
//	+0   u32 ID, 0 is a free slot; stored last
//	+4   u16 Tactic
//	+6   u16 length of Name
//	+8   u64 Addr
//	+16  u32 Group
//	+24  u64 Armed
//	+64  Name, at most NameSize bytes
type Probe struct {
	ID     uint32
	Name   string // GROUP/EVENT; longer names are cut
	Addr   uint64 // of the site in the target
	Tactic uint16 // a plan.Tactic
	Armed  uint64 // CLOCK_MONOTONIC, ns
	// Group is that of the sites which the probe needs; 0: it isn't known, or kprobe needs them itself.
	Group uint32
}

// Encode gives the descriptor's bytes.
func (p *Probe) Encode() []byte {
	b := make([]byte, ProbeSize)
	p.EncodeTo(b)
	return b
}

// EncodeTo is Encode into b, of ProbeSize bytes.
func (p *Probe) EncodeTo(b []byte) {
	clear(b[:ProbeSize])
	le := binary.LittleEndian
	le.PutUint32(b, p.ID)
	le.PutUint16(b[TacticOff:], p.Tactic)
	le.PutUint16(b[6:], uint16(copy(b[64:], p.Name)))
	le.PutUint64(b[8:], p.Addr)
	le.PutUint32(b[GroupOff:], p.Group)
	le.PutUint64(b[24:], p.Armed)
}

// DecodeProbe takes a descriptor apart. A free slot gives ID 0.
func DecodeProbe(b []byte) (Probe, error) {
	if len(b) < ProbeSize {
		return Probe{}, fmt.Errorf("%w: probe of %d bytes", ErrCorrupt, len(b))
	}
	le := binary.LittleEndian
	n := int(le.Uint16(b[6:]))
	if n > NameSize {
		return Probe{}, fmt.Errorf("%w: event name of %d bytes", ErrCorrupt, n)
	}
	return Probe{
		ID: le.Uint32(b), Tactic: le.Uint16(b[TacticOff:]), Name: string(b[64 : 64+n]), Addr: le.Uint64(b[8:]),
		Armed: le.Uint64(b[24:]), Group: le.Uint32(b[GroupOff:]),
	}, nil
}

// SiteSize is the size of an entry of the table of sites, at Layout.Site(n);
// SiteBytes is the most bytes that one patch changes.
const (
	SiteSize  = 128
	SiteBytes = 32
	// SiteGroupOff is where an entry's Group is.
	SiteGroupOff = 112
)

// Site is a patched place: what a later kprobe needs in order to remove the patch and to know
// where its threads may be.
//
//	+0   u64 Addr, 0 is a free slot; stored last
//	+12  u16 Tactic
//	+14  u8 length of Before and After
//	+16  u64 Detour
//	+24  u64 Copy
//	+32  Before, SiteBytes
//	+64  After, SiteBytes
//	+96  u64 Lo
//	+104 u64 Hi
//	+112 u32 Group
type Site struct {
	Addr   uint64 // of the first changed byte
	Tactic uint16 // a plan.Tactic
	Detour uint64
	Copy   uint64 // of the instruction that starts at Addr
	Before []byte // at most SiteBytes
	After  []byte // as long as Before
	// Lo and Hi bound the bytes that must stay as they are for the patch, written or not: what it displaces, and
	// what is part of its displacement. 0: only After.
	Lo, Hi uint64
	// Group is a number that all sites have in common which must be restored together. They may be once no probe
	// has it. 0: it isn't known, or kprobe needs the site as long as there are any probes.
	Group uint32
	Entry int // its number in the table; not encoded
}

// Encode gives the entry's bytes.
func (s *Site) Encode() ([]byte, error) {
	b := make([]byte, SiteSize)
	if err := s.EncodeTo(b); err != nil {
		return nil, err
	}
	return b, nil
}

// EncodeTo is Encode into b, of SiteSize bytes. On an error it leaves b as it is.
func (s *Site) EncodeTo(b []byte) error {
	if len(s.Before) > SiteBytes || len(s.After) != len(s.Before) {
		return fmt.Errorf("%w: patch of %d bytes over %d", ErrParams, len(s.After), len(s.Before))
	}
	clear(b[:SiteSize])
	le := binary.LittleEndian
	le.PutUint64(b, s.Addr)
	le.PutUint16(b[12:], s.Tactic)
	b[14] = byte(len(s.Before))
	le.PutUint64(b[16:], s.Detour)
	le.PutUint64(b[24:], s.Copy)
	copy(b[32:], s.Before)
	copy(b[64:], s.After)
	le.PutUint64(b[96:], s.Lo)
	le.PutUint64(b[104:], s.Hi)
	le.PutUint32(b[SiteGroupOff:], s.Group)
	return nil
}

// MostOwned bounds the bytes between Lo and Hi of a Site.
const MostOwned = 1 << 16

// DecodeSite takes an entry apart. A free slot gives Addr 0.
func DecodeSite(b []byte) (Site, error) {
	if len(b) < SiteSize {
		return Site{}, fmt.Errorf("%w: site of %d bytes", ErrCorrupt, len(b))
	}
	n := int(b[14])
	le := binary.LittleEndian
	s := Site{
		Addr: le.Uint64(b), Tactic: le.Uint16(b[12:]),
		Detour: le.Uint64(b[16:]), Copy: le.Uint64(b[24:]), Lo: le.Uint64(b[96:]), Hi: le.Uint64(b[104:]),
		Group: le.Uint32(b[SiteGroupOff:]),
	}
	if s.Hi-s.Lo > MostOwned {
		return Site{}, fmt.Errorf("%w: a patch of %d bytes at %#x", ErrCorrupt, s.Hi-s.Lo, s.Addr)
	}
	if n > SiteBytes || n == 0 && s.Addr != 0 || s.Addr+uint64(n) < s.Addr {
		return Site{}, fmt.Errorf("%w: site of %d bytes at %#x", ErrCorrupt, n, s.Addr)
	}
	if s.Addr == 0 {
		return s, nil
	}
	s.Before = append([]byte(nil), b[32:32+n]...)
	s.After = append([]byte(nil), b[64:64+n]...)
	return s, nil
}

// MapSize is the size of an entry of the table of code mappings, at
// Layout.Map(n).
const MapSize = 32

// MapUsed is where an entry's Used is.
const MapUsed = 24

// Map is memory in the target that is mapped for a session, so that a later one
// finds it.
//
//	+0   u64 Addr, 0 is a free slot; stored last
//	+8   u64 Size
//	+24  u64 Used
type Map struct {
	Addr uint64 // in the target
	Size uint64 // bytes
	Used uint64 // bytes from the start that are in use; 0: it is being mapped or unmapped

	Entry int // its number in the table, as ReadMaps finds it; not stored in it
}

// Encode gives the entry's bytes.
func (m *Map) Encode() []byte {
	b := make([]byte, MapSize)
	le := binary.LittleEndian
	le.PutUint64(b, m.Addr)
	le.PutUint64(b[8:], m.Size)
	le.PutUint64(b[MapUsed:], m.Used)
	return b
}

// DecodeMap takes an entry apart. A free slot gives Addr 0.
func DecodeMap(b []byte) (Map, error) {
	if len(b) < MapSize {
		return Map{}, fmt.Errorf("%w: mapping of %d bytes", ErrCorrupt, len(b))
	}
	le := binary.LittleEndian
	m := Map{Addr: le.Uint64(b), Size: le.Uint64(b[8:]), Used: le.Uint64(b[MapUsed:])}
	if m.Addr+m.Size < m.Addr || m.Used > m.Size {
		return Map{}, fmt.Errorf("%w: mapping of %#x bytes at %#x", ErrCorrupt, m.Size, m.Addr)
	}
	return m, nil
}

// MailboxSize is the room for requests of other kprobes.
const MailboxSize = 64 << 10
