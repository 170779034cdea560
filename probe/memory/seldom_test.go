package memory

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/probe/plan"
	"kprobe/probe/ring"
)

// manySites and the like need parts of many MiB each, of which kprobe is to hold a few.
const (
	manySites = 100_000
	mostHeld  = 2 << 20
)

// sharedFile is a memory file as kprobe has it mapped, with the file itself: without a name, or a kept one.
func sharedFile(t *testing.T, kept bool) (*File, *os.File) {
	t.Helper()
	p := ring.Params{CPUs: 4, RingSize: ring.MinRingSize}
	p.Sites, p.MaxProbes = 2*manySites, manySites
	l, err := ring.New(p)
	if err != nil {
		t.Fatal(err)
	}
	var f *os.File
	if kept {
		dir, err := os.MkdirTemp("/dev/shm", "kprobe-test-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		f, err = Keep(filepath.Join(dir, "kept"), l)
		if err != nil {
			t.Fatal(err)
		}
	} else {
		fd, err := unix.MemfdCreate(ring.MemfdName, unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		f = os.NewFile(uintptr(fd), ring.MemfdName)
		if err := f.Truncate(l.Code.Off); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { f.Close() })
	mem, err := unix.Mmap(int(f.Fd()), 0, int(l.Code.Off), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	return &File{Layout: l, size: uint64(l.Code.Off), Mem: mem, own: NewMapped(mem)}, f
}

// held is how many bytes of a part of the file this process holds.
func held(t *testing.T, f *File, part ring.Section) int {
	t.Helper()
	return fixture.Held(t, f.Mem[part.Off:part.End()])
}

// TestJournalIsNotHeld: kprobe holds little of a journal of many entries, which the file has, as it makes them and as
// it removes them.
func TestJournalIsNotHeld(t *testing.T) {
	for _, kept := range []bool{false, true} {
		t.Run(fmt.Sprintf("kept=%v", kept), func(t *testing.T) {
			m, f := sharedFile(t, kept)
			j := NewJournal(m)
			before := []byte{1, 2, 3, 4, 5}
			for i := range uint64(manySites) {
				n, err := j.Change(plan.Write{At: 0x1000 + 16*i, Bytes: []byte{9, 8, 7, 6, 5}}, before, i+1, 3, plan.Range{})
				if err != nil || n != int(i) {
					t.Fatalf("entry %d: %d, %v", i, n, err)
				}
				if i%1000 == 0 && held(t, m, m.Layout.Sites) > mostHeld {
					t.Fatalf("with %d entries it holds %d bytes", i, held(t, m, m.Layout.Sites))
				}
			}
			b := make([]byte, ring.SiteSize)
			for i := range uint64(manySites) {
				if _, err := f.ReadAt(b, m.Layout.Site(int(i))); err != nil {
					t.Fatal(err)
				}
				if s, err := ring.DecodeSite(b); err != nil || s.Addr != 0x1000+16*i || s.Detour != i+1 || !bytes.Equal(s.Before, before) {
					t.Fatalf("the file has, of entry %d: %+v, %v", i, s, err)
				}
			}
			stays := []int{0, manySites / 2, manySites - 1}
			for n := range manySites {
				if !slices.Contains(stays, n) {
					j.Remove(n)
				}
			}
			sitesRead(t, j, f, stays)
			for _, n := range stays {
				j.Remove(n)
			}
			sitesRead(t, j, f, nil)
			if got := held(t, m, m.Layout.Sites); got > mostHeld {
				t.Errorf("it holds %d bytes of the entries that it has removed", got)
			}
			for n := range manySites {
				if got := m.Load64(m.Layout.Site(n)); got != 0 {
					t.Fatalf("entry %d is still there: %#x", n, got)
				}
			}
		})
	}
}

// sitesRead requires that a journal reads the entries with certain numbers, as the file has them, and maps few pages for it.
func sitesRead(t *testing.T, j *Journal, f *os.File, want []int) {
	t.Helper()
	j.sites.letGo()
	got, err := j.Sites()
	if err != nil {
		t.Fatal(err)
	}
	if n := held(t, j.file, j.file.Layout.Sites); n > len(want)*seldomLeast*PageSize {
		t.Errorf("to read %d entries it mapped %d bytes", len(want), n)
	}
	h := ring.Header{Sites: uint32(j.next)}
	all, err := ring.ReadSites(f, &h, j.file.Layout)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) || len(all) != len(want) {
		t.Fatalf("it read %d entries, the file has %d, want %d", len(got), len(all), len(want))
	}
	for i, n := range want {
		if got[i].Entry != n || !reflect.DeepEqual(got[i], all[i]) {
			t.Errorf("it read %+v, the file has %+v", got[i], all[i])
		}
	}
}

// TestCountersAreNotHeld: kprobe holds little of the counters of many probes that it has read, and counts that others
// make meanwhile are there.
func TestCountersAreNotHeld(t *testing.T) {
	m, f := sharedFile(t, false)
	c, err := m.Counters()
	if err != nil {
		t.Fatal(err)
	}
	producer, err := ring.NewProducer(m.Mem, m.Layout)
	if err != nil {
		t.Fatal(err)
	}
	for id := uint32(1); id <= manySites; id++ {
		producer.Count(int(id%4), id, ring.CounterHits, uint64(id))
		if n := c.Probe(id); n.Hits != uint64(id) {
			t.Fatalf("probe %d: %+v", id, n)
		}
	}
	const most = mostHeld + 5*seldomLeast*PageSize
	if got := held(t, m, m.Layout.PerCPU); got > most {
		t.Errorf("it holds %d bytes of counters, want at most %d", got, most)
	}
	b := make([]byte, 8)
	for id := uint32(1); id <= manySites; id += 1000 {
		if _, err := f.ReadAt(b, m.Layout.Counter(int(id%4), id, ring.CounterHits)); err != nil || binary.LittleEndian.Uint64(b) != uint64(id) {
			t.Fatalf("the file has % x of probe %d, %v", b, id, err)
		}
	}
}

// TestSeldomLosesNothing: stores and additions of several goroutines at the time when pages are let go of are there
// afterwards.
func TestSeldomLosesNothing(t *testing.T) {
	m, _ := sharedFile(t, false)
	part := m.Layout.Sites
	s := m.Seldom(part, 1)
	const writers, rounds, words = 4, 300, 64
	done := make(chan bool)
	for range writers {
		go func() {
			for range rounds {
				for i := range int64(words) {
					at := part.Off + i*PageSize
					m.Add64(at, 1)
					s.Touched(at, 8)
				}
			}
			done <- true
		}()
	}
	for range writers {
		<-done
	}
	for i := range int64(words) {
		if got := m.Load64(part.Off + i*PageSize); got != writers*rounds {
			t.Errorf("word %d is %d, want %d", i, got, writers*rounds)
		}
	}
}
