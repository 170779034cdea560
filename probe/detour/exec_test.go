package detour

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
	"kprobe/symbols"
)

// Where the pieces of a run lie in the child. Those of stubs and registers are
// in the lowest 2 GiB, where code reaches them without a register. The others
// differ in more than one high bit: AMD's first-level cache tells lines apart by
// a hash of the linear address, and two that collide cost 4 ns at each access.
const (
	stubAt     = 0x1000_0000
	blockAt    = 0x1010_0000 // saved SP, current case, scratch, target
	caseAt     = 0x2000_0000_0000
	codeAt     = 0x2100_0000_0000
	stackAt    = 0x2200_0000_0000
	dataAt     = 0x2300_0000_0000 // followed by a hole
	cpusAt     = 0x2400_1230_0000
	ringAt     = 0x2500_6de0_0000
	flagsAt    = 0x2400_4567_3000
	fallbackAt = 0x2700_0000_0000

	stackSize = 8 << 10 // of each case
	dataSize  = 64 << 10
	testRing  = 1 << 20
)

// A case: registers in, registers out, and where to go.
const (
	caseRegs  = 0   // 16 general registers, flags
	caseXMM   = 144 // 16 × 16 bytes
	caseOut   = 512
	caseTo    = 400
	caseHead  = 1016 // what the ring's head was afterwards
	caseSize  = 1024
	blockSP   = 0
	blockCase = 8
	blockTmp  = 16
	blockTo   = 24
)

// space is the memory that a child and the test share.
type space struct {
	t    testing.TB
	path string
	mem  []byte
	segs []shared
	size int
}

type shared struct {
	addr, off, size, prot uint64
}

func newSpace(t testing.TB) *space { return &space{t: t, size: 8192} }

// add plans a segment of the child's memory.
func (s *space) add(addr, size, prot uint64) {
	size = (size + 4095) &^ 4095
	s.segs = append(s.segs, shared{addr, uint64(s.size), size, prot})
	s.size += int(size)
}

// open makes the file.
func (s *space) open() {
	s.t.Helper()
	dir := s.t.TempDir()
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		if d, err := os.MkdirTemp("/dev/shm", "kprobe-detour"); err == nil {
			dir = d
			s.t.Cleanup(func() { os.RemoveAll(d) })
		}
	}
	s.path = filepath.Join(dir, "space")
	f, err := os.Create(s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(s.size)); err != nil {
		s.t.Fatal(err)
	}
	s.mem, err = syscall.Mmap(int(f.Fd()), 0, s.size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = syscall.Munmap(s.mem) })
	for i, g := range s.segs {
		for k, v := range []uint64{g.addr, g.off, g.size, g.prot} {
			binary.LittleEndian.PutUint64(s.mem[32*i+8*k:], v)
		}
	}
}

// at is the memory from an address of the child to its segment's end.
func (s *space) at(addr uint64) []byte {
	for _, g := range s.segs {
		if addr >= g.addr && addr < g.addr+g.size {
			return s.mem[g.off+addr-g.addr : g.off+g.size : g.off+g.size]
		}
	}
	return nil
}

// ReadMemory makes a space the memory of the interpreter.
func (s *space) ReadMemory(b []byte, at symbols.Addr) (int, error) {
	n := 0
	for n < len(b) {
		m := s.at(uint64(at) + uint64(n))
		if len(m) == 0 {
			return n, syscall.EFAULT
		}
		n += copy(b[n:], m)
	}
	return n, nil
}

func (s *space) put64(addr, v uint64) { binary.LittleEndian.PutUint64(s.at(addr), v) }
func (s *space) get64(addr uint64) uint64 {
	return binary.LittleEndian.Uint64(s.at(addr))
}

// stubs emits enter, which loads a case's registers and jumps to its code, and
// returns where the code must jump to at its end.
func (s *space) stubs() (enter, after uint64) {
	c := asm.New(stubAt)
	kept := []asm.Reg{asm.BX, asm.BP, asm.R12, asm.R13, asm.R14, asm.R15}
	enter = c.Here()
	for _, r := range kept {
		c.Push(r)
	}
	c.Store(asm.W64, asm.Abs(blockAt+blockSP), asm.SP)
	c.Store(asm.W64, asm.Abs(blockAt+blockCase), asm.DI)
	c.Load(asm.W64, asm.AX, asm.At(asm.DI, caseTo))
	c.Store(asm.W64, asm.Abs(blockAt+blockTo), asm.AX)
	for i := range 16 {
		movups(c, 0x10, i, caseXMM+16*i) // load
	}
	c.PushMem(asm.At(asm.DI, caseRegs+16*8))
	for r := asm.AX; r <= asm.R15; r++ {
		if r != asm.DI && r != asm.SP {
			c.Load(asm.W64, r, asm.At(asm.DI, caseRegs+8*int32(r)))
		}
	}
	c.Popf()
	c.Load(asm.W64, asm.SP, asm.At(asm.DI, caseRegs+8*int32(asm.SP)))
	c.Load(asm.W64, asm.DI, asm.At(asm.DI, caseRegs+8*int32(asm.DI)))
	c.JmpMem(asm.Abs(blockAt + blockTo))

	after = c.Here()
	c.Store(asm.W64, asm.Abs(blockAt+blockTmp), asm.DI)
	c.Load(asm.W64, asm.DI, asm.Abs(blockAt+blockCase))
	for r := asm.AX; r <= asm.R15; r++ {
		c.Store(asm.W64, asm.At(asm.DI, caseOut+8*int32(r)), r)
	}
	c.Load(asm.W64, asm.AX, asm.Abs(blockAt+blockTmp))
	c.Store(asm.W64, asm.At(asm.DI, caseOut+8*int32(asm.DI)), asm.AX)
	c.Load(asm.W64, asm.SP, asm.Abs(blockAt+blockSP))
	c.Pushf()
	c.PopMem(asm.At(asm.DI, caseOut+16*8))
	for i := range 16 {
		movups(c, 0x11, i, caseOut+caseXMM+16*i) // store
	}
	c.Raw(0xfc) // cld
	for i := len(kept) - 1; i >= 0; i-- {
		c.Pop(kept[i])
	}
	c.Ret()
	copy(s.at(stubAt), assemble(s.t, c))
	return enter, after
}

// movups is movups between xmmN and [rdi+off].
func movups(c *asm.Code, op byte, n, off int) {
	if n >= 8 {
		c.Raw(0x44)
	}
	c.Raw(0x0f, op, 0x87|byte(n&7)<<3)
	c.Data32(uint32(off))
}

// newMachine is a space with all that detours need: an area and a ring for one
// CPU, flags, a stack, a fallback handler, and n cases.
func newMachine(t testing.TB, cases, codeSize int, more ...shared) *machine {
	t.Helper()
	m := &machine{space: newSpace(t), cases: cases}
	m.add(stubAt, 4096, protRX)
	m.add(blockAt, 4096, protRW)
	m.add(caseAt, uint64(cases)*caseSize, protRW)
	m.add(codeAt, uint64(codeSize)+4096, protRX)
	m.add(stackAt, uint64(cases)*stackSize, protRW)
	m.add(dataAt, dataSize, protRW)
	m.add(cpusAt, 1<<20, protRW)
	m.add(ringAt, testRing+ring.Slack, protRW)
	m.add(flagsAt, 4096, protRW)
	m.add(poolAt, 64<<10, protRW)
	for _, g := range more {
		m.add(g.addr, g.size, g.prot)
	}
	room := TableSize(100 * cases)
	m.add(fallbackAt, 4096, protRX)
	m.add(fallbackAt+4096, FallbackDataSize, protRW)
	m.add(fallbackAt+8192, uint64(room), protRW)
	m.open()
	m.enter, m.after = m.stubs()
	code, l := Fallback(fallbackAt, FallbackParams{Data: fallbackAt + 4096})
	copy(m.at(fallbackAt), code)
	m.fallback = l
	nd := FallbackData{W: memory(m.at(fallbackAt + 4096))}
	nd.SetTable(fallbackAt + 8192)
	var err error
	if m.table, err = NewTable(memory(m.at(fallbackAt+8192)), fallbackAt+8192, room); err != nil {
		t.Fatal(err)
	}
	m.put64(cpusAt+ring.DataPtr, ringAt)
	m.put64(cpusAt+ring.MaskOff, testRing-1)
	m.put64(cpusAt+ring.SeqOff+ring.DataPtr, ringAt)
	m.put64(cpusAt+ring.SeqOff+ring.MaskOff, testRing-1)
	m.code, m.watch = codeAt, cpusAt+ring.HeadOff
	m.texts = m.common(m.params())
	binary.LittleEndian.PutUint32(m.at(flagsAt + ring.SeqCPUs)[:4], 2)
	for i := 1; i < 1024; i++ {
		binary.LittleEndian.PutUint32(m.at(flagsAt + uint64(4*i))[:4], ring.FlagEnabled)
	}
	return m
}

type machine struct {
	*space
	cases        int
	enter, after uint64
	fallback     FallbackLabels
	table        *Table
	code         uint64 // where the next detour goes
	watch        uint64 // what is kept after each case
	texts        *Shared
	rseq         int32 // Params.Rseq
	careful      bool  // Params.Careful: no load is repaired
	files        []*os.File
}

func (m *machine) params() *Params {
	return &Params{PerCPU: cpusAt, AreaShift: 20, TallyOff: tallyOff, TakenOff: takenOff, RingSize: testRing, Flags: flagsAt, PID: 4711,
		TID: TID{Seg: asm.FS, Off: 0x2d0}, Rdpid: hasRdpid(), Shared: m.texts, Rseq: m.rseq, Careful: m.careful}
}

// carefully has detours ask before they load; what faults nevertheless ends the test.
func (m *machine) carefully() {
	m.careful = true
	m.texts = m.common(m.params())
}

// hasRdpid reports what /proc/cpuinfo says.
func hasRdpid() bool {
	b, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && strings.Contains(string(b), " rdpid")
}

// place puts a detour behind the others and its loads into the fallback handler.
func (m *machine) place(build func(base uint64, tail func(c *asm.Code) error) (*Detour, error)) (*Detour, error) {
	d, err := build(m.code, func(c *asm.Code) error {
		l := c.NewLabel()
		c.JmpMem(asm.Rel(l))
		c.Bind(l)
		c.Data64(m.after)
		return nil
	})
	if err != nil {
		return nil, err
	}
	room := m.at(m.code)
	if len(d.Code) > len(room) {
		m.t.Fatalf("no room for %d bytes of code", len(d.Code))
	}
	copy(room, d.Code)
	m.code = (m.code + uint64(len(d.Code)) + 63) &^ 63
	for _, f := range d.Faults() {
		if m.careful {
			break
		}
		if err := m.table.Insert(FaultKey(f.At), f.To); err != nil {
			m.t.Fatal(err)
		}
	}
	return d, nil
}

// common puts the code that return probes of p share behind the others.
func (m *machine) common(p *Params) *Shared {
	s, err := BuildShared(m.code, p)
	if err != nil {
		m.t.Fatal(err)
	}
	copy(m.at(m.code), s.Code)
	for _, f := range s.Faults {
		if m.careful {
			break
		}
		if err := m.table.Insert(FaultKey(f.At), f.To); err != nil {
			m.t.Fatal(err)
		}
	}
	m.code = (m.code + uint64(len(s.Code)) + 63) &^ 63
	return s
}

// setCase writes a case's registers.
func (m *machine) setCase(i int, to uint64, r *fetch.Regs, v *fetch.Vector) {
	c := m.at(caseAt + uint64(i)*caseSize)
	for k, g := range r.GPR {
		binary.LittleEndian.PutUint64(c[caseRegs+8*k:], g)
	}
	binary.LittleEndian.PutUint64(c[caseRegs+16*8:], r.Flags)
	for k := range v {
		copy(c[caseXMM+16*k:], v[k][:])
	}
	binary.LittleEndian.PutUint64(c[caseTo:], to)
}

// checkCase fails the test if a register, a flag or an xmm register changed.
func (m *machine) checkCase(i int) bool { return m.checkAfter(i, false) }

// checkAfter is checkCase, and lets the status flags change if they are dead.
func (m *machine) checkAfter(i int, flagsDead bool) bool {
	c := m.at(caseAt + uint64(i)*caseSize)
	ok := true
	for k := range 17 {
		in, out := binary.LittleEndian.Uint64(c[caseRegs+8*k:]), binary.LittleEndian.Uint64(c[caseOut+8*k:])
		if k == 16 {
			out &^= 0x10202 &^ in // reserved, IF, RF
			in &^= 0x10202
			out &^= 0x10202
			if flagsDead {
				in, out = in&^arithFlags, out&^arithFlags
			}
		}
		if in != out {
			m.t.Errorf("case %d: register %d was %#x and is %#x", i, k, in, out)
			ok = false
		}
	}
	if string(c[caseXMM:caseXMM+256]) != string(c[caseOut+caseXMM:caseOut+caseXMM+256]) {
		m.t.Errorf("case %d: an xmm register changed", i)
		ok = false
	}
	return ok
}

// run runs the first n cases in a child and returns its thread's number.
func (m *machine) run(n int) int {
	m.t.Helper()
	prog := fixture.Build(m.t, "detour_exec.c", "-O1")
	var args []string
	for _, v := range []uint64{m.enter, caseAt, caseSize, uint64(n), m.watch, m.fallback.Handler, m.fallback.Restorer, fallbackAt + 4096} {
		args = append(args, hex(v))
	}
	child := exec.Command(prog, append([]string{m.path}, args...)...)
	child.ExtraFiles = m.files
	out, err := child.Output()
	if err != nil {
		m.t.Fatalf("child: %v", err)
	}
	tid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		m.t.Fatal(err)
	}
	return tid
}

// hits is how many records of a probe are in the machine's ring, or didn't find
// room there.
func (m *machine) hits(id uint32) uint64 {
	m.t.Helper()
	n := m.counter(id, ring.CounterLost)
	for pos, head := uint64(0), m.get64(cpusAt+ring.HeadOff); pos != head; {
		got, units, committed := ring.SplitState(binary.LittleEndian.Uint32(m.at(ringAt + pos)))
		if !committed || units == 0 || head > testRing {
			m.t.Fatalf("at %d of %d in the ring: %d units, committed %v", pos, head, units, committed)
		}
		pos += uint64(units) * ring.Unit
		n += b2i(got == id)
	}
	return n
}

// tallyOff is where hits are that the tally counts, takenOff where records are that were
// overwritten.
const (
	tallyOff = 512 << 10
	takenOff = 768 << 10
)

// counter is a counter of a probe in the machine's area; with hits of sequences are those
// of the tally.
func (m *machine) counter(id uint32, c int) uint64 {
	n := m.get64(cpusAt + ring.CountersOff + uint64(id)*ring.CounterSize + uint64(c))
	if c == ring.CounterHits+ring.CounterSeq {
		n += m.get64(cpusAt + tallyOff + 8*uint64(id))
	}
	return n
}

// taken is how many records of a probe are counted as overwritten in the machine's ring.
func (m *machine) taken(id uint32) uint64 {
	return m.get64(cpusAt + takenOff + ring.TakenSize*uint64(id))
}
