package ring

import (
	"encoding/binary"
	"io"
	"testing"
)

// hostileFile is a memory file of any size whose first bytes are given and whose
// others repeat them: what a target may have written.
type hostileFile struct {
	b    []byte
	read int64
}

func (f *hostileFile) ReadAt(b []byte, off int64) (int, error) {
	f.read += int64(len(b))
	if off < 0 || len(f.b) == 0 {
		return 0, io.EOF
	}
	for i := range b {
		b[i] = f.b[(off+int64(i))%int64(len(f.b))]
	}
	return len(b), nil
}

// FuzzMemoryFile: whatever a target writes into what it calls kprobe's memory
// file, reading it ends, within what a real one has, and everything that comes
// back is as the tables promise.
func FuzzMemoryFile(f *testing.F) {
	const cpus = 2
	l, err := New(Params{CPUs: cpus})
	if err != nil {
		f.Fatal(err)
	}
	h := &Header{Base: 1 << 20, Tracer: 1, Probes: 9, Sites: 9, Maps: 9}
	page := h.Encode(l)
	site, err := (&Site{Addr: 0x1000, Before: []byte{1, 2}, After: []byte{3, 4}}).Encode()
	if err != nil {
		f.Fatal(err)
	}
	probe := &Probe{ID: 1, Name: "kprobes/ev", Addr: 0x1000}
	code := &Map{Addr: 0x10000, Size: 4096, Used: 9}
	f.Add(page, []byte{}, uint32(9), uint32(9), uint32(9))
	f.Add(page, probe.Encode(), uint32(65535), uint32(0), uint32(0))
	f.Add(page, site, uint32(1), uint32(65536), uint32(1))
	f.Add(page, code.Encode(), uint32(1), uint32(1), uint32(16384))
	f.Add(page, append(site, 0xff), ^uint32(0), ^uint32(0), ^uint32(0))
	f.Fuzz(func(t *testing.T, page, rest []byte, probes, sites, maps uint32) {
		page = append(page[:min(len(page), PageSize):min(len(page), PageSize)], make([]byte, max(0, PageSize-len(page)))...)
		le := binary.LittleEndian
		le.PutUint32(page[ProbesOff:], probes)
		le.PutUint32(page[SitesOff:], sites)
		le.PutUint32(page[MapsOff:], maps)
		file := &hostileFile{b: append(page, rest...)}
		const most = 64 << 20
		if s, err := ReadSnapshot(file, cpus); err == nil && len(s.Probes) > MaxID {
			t.Errorf("%d probes", len(s.Probes))
		}
		h, l, err := ReadHeader(file, cpus)
		if err != nil {
			return
		}
		if list, err := ReadSites(file, h, l); err == nil {
			for _, s := range list {
				if n := len(s.Before); n == 0 || n > SiteBytes || len(s.After) != n || s.Addr == 0 || s.Addr+uint64(n) < s.Addr {
					t.Fatalf("site %+v", s)
				}
			}
		}
		if list, err := ReadMaps(file, h, l); err == nil {
			for _, m := range list {
				if m.Addr == 0 || m.Addr+m.Size < m.Addr || m.Used > m.Size {
					t.Fatalf("mapping %+v", m)
				}
			}
		}
		_, _, _, _ = ReadAnswer(file, l, 7)
		if file.read > most {
			t.Errorf("%d bytes were read", file.read)
		}
	})
}
