package ring

import (
	"encoding/binary"
	"fmt"
	"io"
)

// ProbeState is a probe as another process sees it.
type ProbeState struct {
	Probe
	Flags  uint32 // FlagEnabled …
	Counts Counts
}

// Snapshot is a live session as another process sees it through /proc, without disturbing it.
// Its parts were read one after another while the target ran.
type Snapshot struct {
	Header Header
	Layout *Layout
	Probes []ProbeState // in order of id

	taken []byte // of each area, what lies at Layout.TakenOff; nil: nothing does
}

// ReadHeader reads and checks the first page of a file. Offset 0 of r is the file's start: for
// a target's /proc/PID/mem that is io.NewSectionReader(mem, base, size).
//
// cpus is the number of the machine's CPUs (ParseCPUs). A file that a session laid out on this
// machine has areas for them, and as many probes as ForProbes or Compact says. Any other is
// ErrCorrupt, because its tables may take forever to read. cpus 0 accepts any file.
func ReadHeader(r io.ReaderAt, cpus int) (*Header, *Layout, error) {
	b := make([]byte, PageSize)
	if err := readFull(r, b, 0); err != nil {
		return nil, nil, fmt.Errorf("read the ring file's header: %w", err)
	}
	h, l, err := DecodeHeader(b)
	if err == nil && cpus > 0 && (l.CPUs != areas(cpus) || !common(l.MaxProbes)) {
		err = fmt.Errorf("%w: for %d CPUs and %d probes, a session here has %d and %d or a power of two more", ErrCorrupt, l.CPUs, l.MaxProbes, areas(cpus), minProbes)
	}
	if err != nil {
		return nil, nil, err
	}
	return h, l, nil
}

// ReadSnapshot reads the probes of a file and their counters. Slots that are free or just being
// filled are left out. For cpus see ReadHeader.
func ReadSnapshot(r io.ReaderAt, cpus int) (*Snapshot, error) {
	h, l, err := ReadHeader(r, cpus)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{Header: *h, Layout: l}
	n := int64(h.Probes) + 1
	descs := make([]byte, n*ProbeSize)
	flags := make([]byte, n*4)
	if err := readFull(r, descs, l.Probes.Off); err != nil {
		return nil, fmt.Errorf("read the ring file's probes: %w", err)
	}
	if err := readFull(r, flags, l.Flags.Off); err != nil {
		return nil, fmt.Errorf("read the ring file's flags: %w", err)
	}
	for id := int64(1); id < n; id++ {
		p, err := DecodeProbe(descs[id*ProbeSize:])
		if err != nil {
			return nil, fmt.Errorf("probe %d: %w", id, err)
		}
		if p.ID == 0 {
			continue
		}
		if int64(p.ID) != id {
			return nil, fmt.Errorf("%w: probe %d says it is %d", ErrCorrupt, id, p.ID)
		}
		s.Probes = append(s.Probes, ProbeState{Probe: p, Flags: binary.LittleEndian.Uint32(flags[id*4:])})
	}
	return s, s.Refresh(r)
}

// Refresh reads the counters again, of the probes that s knows.
func (s *Snapshot) Refresh(r io.ReaderAt) error {
	l := s.Layout
	b := make([]byte, (int64(s.Header.Probes)+1)*CounterSize)
	tally := make([]byte, (int64(s.Header.Probes)+1)*8)
	if l.Overwrite {
		s.taken = make([]byte, int64(l.Areas())*s.takenSize())
	}
	for i := range s.Probes {
		s.Probes[i].Counts = Counts{}
	}
	for cpu := l.Areas(); cpu >= 0; cpu-- {
		if err := readFull(r, b, l.Counter(cpu, 0, 0)); err != nil {
			return fmt.Errorf("read the counters of CPU %d: %w", cpu, err)
		}
		if clear(tally); cpu < l.Areas() {
			if err := readFull(r, tally, l.tallied(cpu, 0)); err != nil {
				return fmt.Errorf("read the tally of CPU %d: %w", cpu, err)
			}
		}
		if cpu < l.Areas() && l.Overwrite {
			if err := readFull(r, s.taken[int64(cpu)*s.takenSize():][:s.takenSize()], l.taken(cpu, 0)); err != nil {
				return fmt.Errorf("read what was overwritten of CPU %d: %w", cpu, err)
			}
		}
		for i := range s.Probes {
			p := &s.Probes[i]
			slot := b[int64(p.ID)*CounterSize:][:CounterSize]
			elsewhere := binary.LittleEndian.Uint64(tally[int64(p.ID)*8:])
			if cpu < l.Areas() {
				first, _ := s.takenOf(cpu, p.ID)
				second, _ := s.takenOf(cpu+l.Areas(), p.ID)
				elsewhere += first + second
			}
			p.Counts.addArea(l, cpu, func(off int) uint64 { return binary.LittleEndian.Uint64(slot[off:]) }, elsewhere)
		}
	}
	return nil
}

// takenSize is how many bytes of an area tell of records that were overwritten.
func (s *Snapshot) takenSize() int64 { return (int64(s.Header.Probes) + 1) * TakenSize }

// takenOf returns how many records of a probe were overwritten in a ring, and up to which
// position they are counted there.
func (s *Snapshot) takenOf(ring int, id uint32) (n, to uint64) {
	if s.taken == nil {
		return 0, 0
	}
	areas := s.Layout.Areas()
	b := s.taken[int64(ring%areas)*s.takenSize()+int64(id)*TakenSize+int64(ring/areas)*TakenSeq:]
	return binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
}

// CountHeld is for rings that nobody empties. It adds the records that they hold to the
// counters of their probes, as Recorded. Records that are counted as overwritten, because their
// room is being taken, are not included.
func (s *Snapshot) CountHeld(r io.ReaderAt) error {
	list, err := NewView(r, s.Layout).Take(^uint64(0), false)
	if err != nil {
		return err
	}
	held := map[uint32]uint64{}
	for i := range list {
		r := &list[i]
		if _, to := s.takenOf(r.ring, min(r.ID, s.Header.Probes)); r.pos >= to {
			held[r.ID]++
		}
	}
	for i := range s.Probes {
		n := held[s.Probes[i].ID]
		s.Probes[i].Counts.Hits += n
		s.Probes[i].Counts.Recorded += n
	}
	return nil
}

// ReadSites reads the table of sites; free slots are left out.
func ReadSites(r io.ReaderAt, h *Header, l *Layout) ([]Site, error) {
	const portion = 1024
	b := make([]byte, min(int(h.Sites), portion)*SiteSize)
	var sites []Site
	for first := 0; first < int(h.Sites); first += portion {
		b = b[:min(int(h.Sites)-first, portion)*SiteSize]
		if err := readFull(r, b, l.Sites.Off+int64(first)*SiteSize); err != nil {
			return nil, fmt.Errorf("read the ring file's sites: %w", err)
		}
		for i := range len(b) / SiteSize {
			s, err := DecodeSite(b[i*SiteSize:])
			if err != nil {
				return nil, fmt.Errorf("site %d: %w", first+i, err)
			}
			if s.Entry = first + i; s.Addr != 0 {
				sites = append(sites, s)
			}
		}
	}
	return sites, nil
}

// ReadMaps reads the table of code mappings; free slots are left out.
func ReadMaps(r io.ReaderAt, h *Header, l *Layout) ([]Map, error) {
	b := make([]byte, int64(h.Maps)*MapSize)
	if err := readFull(r, b, l.Maps.Off); err != nil {
		return nil, fmt.Errorf("read the ring file's code mappings: %w", err)
	}
	var maps []Map
	for i := range int(h.Maps) {
		m, err := DecodeMap(b[i*MapSize:])
		if err != nil {
			return nil, fmt.Errorf("mapping %d: %w", i, err)
		}
		if m.Entry = i; m.Addr != 0 {
			maps = append(maps, m)
		}
	}
	return maps, nil
}

// Enable switches a probe on or off in a live session, from its next hit on. The other flags
// stay as they are.
func Enable(w io.WriterAt, l *Layout, id uint32, on bool) error {
	if id == 0 || int64(id) > int64(l.MaxProbes) {
		return fmt.Errorf("%w: probe %d", ErrParams, id)
	}
	b := []byte{0}
	if on {
		b[0] = FlagEnabled
	}
	if _, err := w.WriteAt(b, l.Flag(id)); err != nil {
		return fmt.Errorf("write the flag of probe %d: %w", id, err)
	}
	return nil
}

// readFull is ReadAt that takes a full buffer with io.EOF for success.
func readFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Hide switches a probe off for good and removes it from the list. Its jump stays. No trigger switches it on
// again, except by a hit that is being taken just now.
func Hide(w io.WriterAt, l *Layout, id uint32) error {
	if _, err := w.WriteAt([]byte{0}, l.Kind(id)); err != nil {
		return fmt.Errorf("write whether triggers switch probe %d: %w", id, err)
	}
	if err := Enable(w, l, id, false); err != nil {
		return err
	}
	if _, err := w.WriteAt(make([]byte, 4), l.Probe(id)); err != nil {
		return fmt.Errorf("write the descriptor of probe %d: %w", id, err)
	}
	return nil
}
