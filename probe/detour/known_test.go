package detour

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// Where what is known of memory lies in the tests, and how questions are counted there.
const (
	knownAt  = 0x2800_0000_0000
	callsAt  = knownAt - 4096
	nowhere  = dataAt + dataSize + 0x5000
	tooMany  = 1 << 40
	wholeMap = 1 << endedBits
)

// TestKnown: a page is asked for once, if it is in memory that stays, and again each time once something there
// has ended, or nobody marks what ends. No page is taken to be there that wasn't asked for.
func TestKnown(t *testing.T) {
	noted := func(m *machine, at uint64) {
		m.put64(knownAt+at>>pageShift%(1<<pageBits)*8, at>>pageShift)
	}
	ended := func(m *machine, at uint64) { m.at(knownAt + knownEnded + at>>endedShift%wholeMap)[0] = 1 }
	here := KnownRange{dataAt, dataAt + dataSize}
	for name, tt := range map[string]struct {
		ranges     []KnownRange
		prepare    func(m *machine)
		at         uint64
		shut       bool // nothing may be asked
		read, note bool
	}{
		"first":                {ranges: []KnownRange{{1, 2}, here}, at: dataAt + 0x2010, read: true, note: true},
		"first, none may ask":  {ranges: []KnownRange{here}, at: dataAt + 0x2010, shut: true},
		"again":                {ranges: []KnownRange{here}, at: dataAt + 0x2010, shut: true, read: true, note: true, prepare: func(m *machine) { noted(m, dataAt+0x2000) }},
		"two pages":            {ranges: []KnownRange{here}, at: dataAt + 0x2ffd, shut: true, prepare: func(m *machine) { noted(m, dataAt+0x2000) }, note: true},
		"both pages":           {ranges: []KnownRange{here}, at: dataAt + 0x2ffd, shut: true, read: true, note: true, prepare: func(m *machine) { noted(m, dataAt+0x2000); noted(m, dataAt+0x3000) }},
		"another of its place": {ranges: []KnownRange{here}, at: dataAt + 0x2010, shut: true, prepare: func(m *machine) { noted(m, dataAt+0x2000+1<<(pageShift+pageBits)) }},
		"not in a range":       {ranges: []KnownRange{{dataAt + 0x3000, dataAt + dataSize}, {1, 2}}, at: dataAt + 0x2010, read: true},
		"no range":             {at: dataAt + 0x2010, read: true},
		"not there":            {ranges: []KnownRange{{1, ^uint64(0)}}, at: nowhere},
		"no address":           {ranges: []KnownRange{{1, ^uint64(0)}}, at: 1<<63 + dataAt},
		"ended, not there":     {ranges: []KnownRange{{1, ^uint64(0)}}, at: nowhere, note: true, prepare: func(m *machine) { noted(m, nowhere); ended(m, nowhere) }},
		"ended, there":         {ranges: []KnownRange{here}, at: dataAt + 0x2010, read: true, prepare: func(m *machine) { ended(m, dataAt) }},
		"over, not there":      {ranges: []KnownRange{{1, ^uint64(0)}}, at: nowhere, note: true, prepare: func(m *machine) { noted(m, nowhere); m.at(knownAt + knownState)[0] = KnownOver }},
		"over, there":          {ranges: []KnownRange{here}, at: dataAt + 0x2010, read: true, prepare: func(m *machine) { m.at(knownAt + knownState)[0] = KnownOver }},
		"not begun":            {ranges: []KnownRange{here}, at: dataAt + 0x2010, read: true, prepare: func(m *machine) { m.at(knownAt + knownState)[0] = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, 1, 8192, shared{addr: callsAt, size: 4096 + KnownSize, prot: protRW})
			m.careful = true
			p := m.params()
			p.Known, p.Calls = knownAt, callsAt
			p.Shared = m.common(p)
			copy(m.at(knownAt), KnownTable(tt.ranges, 0))
			for i := range m.at(dataAt) {
				m.at(dataAt)[i] = 7
			}
			if tt.prepare != nil {
				tt.prepare(m)
			}
			if tt.shut {
				m.at(callsAt + callsClosed)[0] = 1
			}
			d, err := m.place(func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
				return Build(base, p, []Probe{{ID: 1, Program: must(t, "p f a=+0(%di):u64 if a == 0x0707070707070707"), CountOnly: true}}, tail)
			})
			if err != nil {
				t.Fatal(err)
			}
			regs := fetch.Regs{}
			for i := range regs.GPR {
				regs.GPR[i] = 0x1111_1111_1111 * uint64(i)
			}
			regs.GPR[fetch.DI], regs.GPR[fetch.SP] = tt.at, stackAt+stackSize/2
			m.setCase(0, d.Base, &regs, &fetch.Vector{})
			m.run(1)
			m.checkCase(0)
			if hits, filtered := m.counter(1, ring.CounterHits), m.counter(1, ring.CounterFiltered); hits != b2i(tt.read) || hits+filtered != 1 {
				t.Errorf("%d hits, %d without", hits, filtered)
			}
			page := tt.at >> pageShift
			if got := m.get64(knownAt+page%(1<<pageBits)*8) == page; got != tt.note {
				t.Errorf("noted is %v, want %v", got, tt.note)
			}
			if n := m.get64(callsAt) & (1<<32 - 1); n != 0 {
				t.Errorf("%d questions are under way", n)
			}
		})
	}
}

// TestUnmaps: each system call that may end a mapping marks what it ends before, and no more.
func TestUnmaps(t *testing.T) {
	const at, mib = 0x7f12_3450_0000, 1 << endedShift
	none := []int(nil)
	marked := func(at uint64, n int) (out []int) {
		for i := range n {
			out = append(out, int(at>>endedShift+uint64(i))%wholeMap)
		}
		slices.Sort(out)
		return out
	}
	type args [6]uint64 // di, si, dx, r10, r8, r9
	untested := Unmapping()
	for _, tt := range []struct {
		name   string
		number int
		args   args
		want   []int
		over   bool
		heap   uint64 // the break afterwards
	}{
		{name: "mmap anywhere", number: sysMmap, args: args{0, 3 * mib, 3, 0x22}, want: none},
		{name: "mmap there", number: sysMmap, args: args{at, 3 * mib, 3, 0x32}, want: marked(at, 3)},
		{name: "mmap asked for", number: sysMmap, args: args{at + 0x1000, mib, 1, 2}, want: marked(at, 2)},
		{name: "mmap code", number: sysMmap, args: args{0, mib, 5, 2}, over: true},
		{name: "mmap low", number: sysMmap, args: args{0, mib, 3, 0x62}, over: true},
		{name: "mprotect kept", number: sysMprotect, args: args{at, mib, 1}, want: none},
		{name: "mprotect none", number: sysMprotect, args: args{at, 4096, 0}, want: marked(at, 1)},
		{name: "mprotect code", number: sysMprotect, args: args{at, 4096, 5}, over: true},
		{name: "mprotect only code", number: sysMprotect, args: args{at, 4096, 4}, over: true, want: marked(at, 1)},
		{name: "munmap", number: sysMunmap, args: args{at + mib - 4096, 8192}, want: marked(at, 2)},
		{name: "munmap a byte", number: sysMunmap, args: args{at, 1}, want: marked(at, 1)},
		{name: "munmap to the end", number: sysMunmap, args: args{at, mib}, want: marked(at, 1)},
		{name: "munmap nothing", number: sysMunmap, args: args{at, 0}, want: none},
		{name: "munmap round", number: sysMunmap, args: args{0x7f12_ffe0_0000, 4 * mib}, want: marked(0x7f12_ffe0_0000, 4)},
		{name: "munmap much", number: sysMunmap, args: args{at, tooMany}, want: marked(0, wholeMap)},
		{name: "brk asked", number: sysBrk, heap: at},
		{name: "brk up", number: sysBrk, args: args{at + mib}, heap: at + mib},
		{name: "brk down", number: sysBrk, args: args{at - 2*mib}, want: marked(at-2*mib, 2), heap: at},
		{name: "brk same", number: sysBrk, args: args{at}, heap: at},
		{name: "mremap", number: sysMremap, args: args{at, mib, 2 * mib, 1}, want: marked(at, 1)},
		{name: "mremap to", number: sysMremap, args: args{at, mib, 2 * mib, 3, at + 64*mib}, want: append(marked(at, 1), marked(at+64*mib, 2)...)},
		{name: "madvise free", number: sysMadvise, args: args{at, mib, 8}, want: none},
		{name: "madvise dontneed", number: sysMadvise, args: args{at, mib, 4}, want: none},
		{name: "madvise huge", number: sysMadvise, args: args{at, mib, 14}, want: none},
		{name: "madvise remove", number: sysMadvise, args: args{at, mib, 9}, want: marked(at, 1)},
		{name: "madvise guard", number: sysMadvise, args: args{at, mib, 102}, want: marked(at, 1)},
		{name: "madvise unguard", number: sysMadvise, args: args{at, mib, 103}, want: none},
		{name: "shmat", number: sysShmat, args: args{1, 0, 0}, want: none},
		{name: "shmat there", number: sysShmat, args: args{1, at, 0x4000}, over: true},
		{name: "personality", number: sysPersonality, over: true},
		{name: "userfaultfd", number: sysUserfaultfd, over: true},
		{name: "pkey_mprotect", number: sysPkeyMprotect, over: true},
		{name: "pkey_alloc", number: sysPkeyAlloc, over: true},
		{name: "process_madvise", number: sysProcMadvise, over: true},
		{name: "read", number: 0, args: args{3, at, mib}, want: none},
		{name: "shmdt", number: 67, args: args{at}, want: none},
	} {
		untested = slices.DeleteFunc(untested, func(n uint32) bool { return n == uint32(tt.number) })
		for _, known := range []bool{true, false} {
			if known && !slices.Contains(Unmapping(), uint32(tt.number)) {
				continue
			}
			t.Run(fmt.Sprint(tt.name, " ", known), func(t *testing.T) {
				m := newMachine(t, 1, 8192, shared{addr: callsAt, size: 4096 + KnownSize, prot: protRW})
				p := m.params()
				p.Known = knownAt
				copy(m.at(knownAt), KnownTable(nil, at))
				x := &Birth{Unmaps: true, NoTask: true, Number: tt.number}
				if !known {
					x.Number, x.From = 0, fetch.Chain{Source: fetch.SourceReg, Reg: fetch.AX}
				}
				d, err := m.place(func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
					return Build(base, p, []Probe{{ID: 1, Program: must(t, "p f"), CountOnly: true, Birth: x}}, tail)
				})
				if err != nil {
					t.Fatal(err)
				}
				regs := fetch.Regs{}
				regs.GPR[fetch.AX], regs.GPR[fetch.SP] = uint64(tt.number), stackAt+stackSize/2
				for i, r := range []fetch.Reg{fetch.DI, fetch.SI, fetch.DX, fetch.R10, fetch.R8, fetch.R9} {
					regs.GPR[r] = tt.args[i]
				}
				m.setCase(0, d.Base, &regs, &fetch.Vector{})
				m.run(1)
				m.checkCase(0)
				var got []int
				for i, x := range m.at(knownAt + knownEnded)[:wholeMap] {
					if x != 0 {
						got = append(got, i)
					}
				}
				slices.Sort(tt.want)
				if !slices.Equal(got, tt.want) {
					t.Errorf("marked are %v, want %v", got, tt.want)
				}
				if over := m.at(knownAt + knownState)[0] == KnownOver; over != tt.over {
					t.Errorf("over is %v, want %v", over, tt.over)
				}
				if heap := m.get64(knownAt + knownBreak); tt.number == sysBrk && heap != tt.heap {
					t.Errorf("the break is %#x, want %#x", heap, tt.heap)
				}
				if rest := m.at(knownAt)[:knownEnded]; !bytes.Equal(rest, make([]byte, len(rest))) {
					t.Error("pages changed")
				}
			})
		}
	}
	if len(untested) > 0 {
		t.Errorf("no test has the system calls %v", untested)
	}
}
