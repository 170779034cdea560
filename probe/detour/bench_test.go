package detour

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// ring1At is the second CPU's ring. At leftAt is memory of probes that were left alone, as
// large, whose ring of each CPU nobody empties, at leftRingAt and 16 MiB behind it.
const (
	ring1At    = 0x2900_3217_6000
	leftAt     = 0x2a00_5432_1000
	leftRingAt = 0x2b00_1765_2000
)

// bench lays functions out that are alike but for their first instruction, of
// seven bytes, which a detour displaces.
type bench struct {
	*machine
	names []string
	addrs []uint64
}

func newBench(t testing.TB) *bench {
	b := &bench{machine: newMachine(t, 1, 1<<20, shared{cpusAt + 1<<20, 0, 1 << 20, protRW}, shared{ring1At, 0, testRing + ring.Slack, protRW},
		shared{leftAt, 0, 3 << 20, protRW}, shared{leftRingAt, 0, 32 << 20, protRW})}
	for cpu := range uint64(2) {
		for n := range uint64(2) {
			at := leftAt + cpu<<20 + n*ring.SeqOff
			b.put64(at+ring.DataPtr, leftRingAt+cpu<<24+n<<23)
			b.put64(at+ring.MaskOff, testRing-1)
			b.put64(at+ring.HeadOff, fullFrom)
			b.put64(at+ring.TailOff, fullFrom)
		}
	}
	b.put64(cpusAt+1<<20+ring.DataPtr, ring1At)
	b.put64(cpusAt+1<<20+ring.MaskOff, testRing-1)
	b.put64(cpusAt+1<<20+ring.SeqOff+ring.DataPtr, ring1At)
	b.put64(cpusAt+1<<20+ring.SeqOff+ring.MaskOff, testRing-1)
	return b
}

// add adds the function; build emits its detour with that tail, nil is none.
func (b *bench) add(name string, build func(base uint64, tail func(c *asm.Code) error) ([]byte, error)) {
	b.t.Helper()
	c := asm.New(b.code)
	first := func(c *asm.Code) {
		c.Lea(asm.AX, asm.At(asm.DI, 0x12345))
	}
	var back uint64
	if build == nil {
		first(c)
		back = c.Here()
	} else {
		l := c.NewLabel()
		c.Jmp(l)
		c.Nop(2)
		back = c.Here()
		c.Op(asm.Xor, asm.W64, asm.AX, asm.SI)
		c.Ret()
		c.Align(64, 0xcc)
		c.Bind(l)
		code, err := build(c.Here(), func(c *asm.Code) error {
			first(c)
			c.JmpAddr(back)
			return nil
		})
		if err != nil {
			b.t.Fatalf("%s: %v", name, err)
		}
		c.Raw(code...)
	}
	if build == nil {
		c.Op(asm.Xor, asm.W64, asm.AX, asm.SI)
		c.Ret()
	}
	c.Align(64, 0xcc)
	code := assemble(b.t, c)
	copy(b.at(b.code), code)
	b.names = append(b.names, name)
	b.addrs = append(b.addrs, b.code)
	b.code += uint64(len(code))
}

func (b *bench) detour(name string, probe Probe) {
	b.add(name, func(base uint64, tail func(c *asm.Code) error) ([]byte, error) {
		d, err := Build(base, b.both(), []Probe{probe}, tail)
		if err != nil {
			return nil, err
		}
		return d.Code, nil
	})
}

// both are the machine's parameters with two CPUs.
func (b *bench) both() *Params {
	p := b.params()
	p.CPUMask = 1
	return p
}

// run gives the ns of each over the first.
func (b *bench) run(n, times, threads int) map[string]float64 {
	prog := fixture.Build(b.t, "detour_bench.c", "-O2")
	args := []string{b.path, hex(cpusAt), strconv.Itoa(n), strconv.Itoa(times), strconv.Itoa(threads)}
	for _, a := range b.addrs {
		args = append(args, hex(a))
	}
	out, err := exec.Command(prog, args...).Output()
	if err != nil {
		b.t.Fatal(err)
	}
	res := map[string]float64{}
	var bare float64
	for i, f := range strings.Fields(string(out)) {
		v, err := strconv.ParseFloat(f, 64)
		if err != nil {
			b.t.Fatal(err)
		}
		if i == 0 {
			bare = v
		}
		res[b.names[i]] = v - bare
	}
	return res
}

// The yardsticks: what a hit costs in code written by hand for one known
// place.
func (b *bench) yardstick(name string, body func(c *asm.Code)) {
	b.add(name, func(base uint64, tail func(c *asm.Code) error) ([]byte, error) {
		c := asm.New(base)
		if body != nil {
			regs := []asm.Reg{asm.AX, asm.CX, asm.DX, asm.SI}
			for _, r := range regs {
				c.Push(r)
			}
			c.Lahf()
			c.Set(asm.O, asm.AX)
			c.Push(asm.AX)
			c.Rdpid(asm.SI)
			c.OpImm(asm.And, asm.W32, asm.SI, 1)
			c.ShiftImm(asm.Shl, asm.W64, asm.SI, 20)
			c.MovAbs(asm.CX, cpusAt)
			c.Op(asm.Add, asm.W64, asm.SI, asm.CX)
			body(c)
			c.Pop(asm.AX)
			c.OpImm(asm.Add, asm.W8, asm.AX, 127)
			c.Sahf()
			for i := len(regs) - 1; i >= 0; i-- {
				c.Pop(regs[i])
			}
		}
		if err := tail(c); err != nil {
			return nil, err
		}
		return c.Bytes()
	})
}

func floorRecord(c *asm.Code) {
	retry := c.Mark()
	full := c.NewLabel()
	c.Load(asm.W64, asm.AX, asm.At(asm.SI, ring.HeadOff))
	c.Lea(asm.CX, asm.At(asm.AX, 40))
	c.Mov(asm.W64, asm.DX, asm.CX)
	c.OpLoad(asm.Sub, asm.W64, asm.DX, asm.At(asm.SI, ring.TailOff))
	c.OpLoad(asm.Cmp, asm.W64, asm.DX, asm.At(asm.SI, ring.MaskOff))
	c.JccShort(asm.A, full)
	c.Lock()
	c.Cmpxchg(asm.W64, asm.At(asm.SI, ring.HeadOff), asm.CX)
	c.JccShort(asm.NE, retry)
	c.OpLoad(asm.And, asm.W64, asm.AX, asm.At(asm.SI, ring.MaskOff))
	c.Mov(asm.W64, asm.CX, asm.AX)
	c.OpLoad(asm.Add, asm.W64, asm.CX, asm.At(asm.SI, ring.DataPtr))
	c.Load(asm.W32, asm.AX, asm.SegAbs(asm.FS, 0x2d0))
	c.Store(asm.W32, asm.At(asm.CX, 4), asm.AX)
	c.Store(asm.W64, asm.At(asm.CX, 16), asm.DI)
	c.Load(asm.W64, asm.AX, asm.At(asm.SP, 8))
	c.Store(asm.W64, asm.At(asm.CX, 24), asm.AX)
	c.Rdtsc()
	c.ShiftImm(asm.Shl, asm.W64, asm.DX, 32)
	c.Op(asm.Or, asm.W64, asm.AX, asm.DX)
	c.Store(asm.W64, asm.At(asm.CX, 8), asm.AX)
	c.StoreImm(asm.W32, asm.At(asm.CX, 0), 0x280001)
	c.Bind(full)
}

// sequence is yardstick in one restartable sequence.
func (b *bench) sequence(name string, area int32, body func(c *asm.Code)) {
	b.add(name, func(base uint64, tail func(c *asm.Code) error) ([]byte, error) {
		c := asm.New(base)
		cs, start, end, aborted, again := c.NewLabel(), c.NewLabel(), c.NewLabel(), c.NewLabel(), c.NewLabel()
		regs := []asm.Reg{asm.AX, asm.CX, asm.DX, asm.SI}
		for _, r := range regs {
			c.Push(r)
		}
		c.Lahf()
		c.Set(asm.O, asm.AX)
		c.Push(asm.AX)
		c.Push(asm.R8)
		c.Bind(again)
		c.Lea(asm.AX, asm.Rel(cs))
		c.Store(asm.W64, asm.SegAbs(asm.FS, area+rseqCS), asm.AX)
		c.Bind(start)
		c.Load(asm.W32, asm.SI, asm.SegAbs(asm.FS, area+rseqCPU))
		c.ShiftImm(asm.Shl, asm.W64, asm.SI, 20)
		c.MovAbs(asm.CX, cpusAt)
		c.Op(asm.Add, asm.W64, asm.SI, asm.CX)
		body(c)
		c.Bind(end)
		c.Pop(asm.R8)
		c.Pop(asm.AX)
		c.OpImm(asm.Add, asm.W8, asm.AX, 127)
		c.Sahf()
		for i := len(regs) - 1; i >= 0; i-- {
			c.Pop(regs[i])
		}
		if err := tail(c); err != nil {
			return nil, err
		}
		c.Data32(RseqSignature)
		c.Bind(aborted)
		c.Jmp(again)
		c.Align(32, 0xcc)
		c.Bind(cs)
		at := func(l asm.Label) uint64 {
			off, _ := c.Offset(l)
			return base + uint64(off)
		}
		for _, v := range []uint64{0, at(start), at(end) - at(start), at(aborted)} {
			c.Data64(v)
		}
		return c.Bytes()
	})
}

// seqRecord is a whole record in the sequence, its head stored last.
func seqRecord(c *asm.Code) {
	full := c.NewLabel()
	c.Load(asm.W64, asm.AX, asm.At(asm.SI, ring.SeqOff+ring.HeadOff))
	c.Lea(asm.R8, asm.At(asm.AX, 40))
	c.Mov(asm.W64, asm.CX, asm.R8)
	c.OpLoad(asm.Sub, asm.W64, asm.CX, asm.At(asm.SI, ring.SeqOff+ring.TailOff))
	c.OpLoad(asm.Cmp, asm.W64, asm.CX, asm.At(asm.SI, ring.SeqOff+ring.MaskOff))
	c.JccShort(asm.A, full)
	c.OpLoad(asm.And, asm.W64, asm.AX, asm.At(asm.SI, ring.SeqOff+ring.MaskOff))
	c.OpLoad(asm.Add, asm.W64, asm.AX, asm.At(asm.SI, ring.SeqOff+ring.DataPtr))
	c.Mov(asm.W64, asm.CX, asm.AX)
	c.Load(asm.W32, asm.AX, asm.SegAbs(asm.FS, 0x2d0))
	c.Store(asm.W32, asm.At(asm.CX, 4), asm.AX)
	c.Rdtsc()
	c.ShiftImm(asm.Shl, asm.W64, asm.DX, 32)
	c.Op(asm.Or, asm.W64, asm.AX, asm.DX)
	c.Store(asm.W64, asm.At(asm.CX, 8), asm.AX)
	c.Store(asm.W64, asm.At(asm.CX, 16), asm.DI)
	c.Load(asm.W64, asm.AX, asm.At(asm.SP, 16))
	c.Store(asm.W64, asm.At(asm.CX, 24), asm.AX)
	c.StoreImm(asm.W32, asm.At(asm.CX, 0), 0x280001)
	c.Store(asm.W64, asm.At(asm.SI, ring.SeqOff+ring.HeadOff), asm.R8)
	c.Bind(full)
}

func BenchmarkHit(t *testing.B)      { benchmarkHit(t, 1) }
func BenchmarkHitTwice(t *testing.B) { benchmarkHit(t, 2) }

func benchmarkHit(t *testing.B, threads int) {
	if !hasRdpid() {
		fixture.Missing(t, "a CPU with rdpid")
	}
	b := newBench(t)
	prog := func(text string) Probe {
		p, err := compile(text)
		if err != nil {
			t.Fatal(err)
		}
		return Probe{ID: uint32(len(b.names) + 1), Program: p}
	}
	b.add("bare", nil)
	b.yardstick("floor-empty", nil)
	b.yardstick("floor-count", func(c *asm.Code) { c.Lock(); c.IncMem(asm.W64, asm.At(asm.SI, 4096)) })
	count := prog("p f")
	count.CountOnly = true
	b.detour("count", count)
	area := rseqArea(t)
	inSequence := func(name string, probe Probe) {
		b.add(name, func(base uint64, tail func(c *asm.Code) error) ([]byte, error) {
			p := b.both()
			p.Rseq, p.FSGSBase = area, true
			d, err := Build(base, p, []Probe{probe}, tail)
			if err != nil {
				return nil, err
			}
			return d.Code, nil
		})
	}
	b.sequence("floor-seq-count", area, func(c *asm.Code) { c.IncMem(asm.W64, asm.At(asm.SI, 4096)) })
	count.ID = uint32(len(b.names) + 1)
	inSequence("seq-count", count)
	b.sequence("floor-seq-record", area, seqRecord)
	inSequence("seq-record", prog("p f a=%di b=%si"))
	inSequence("seq-string", prog("p f a=%di b=%si s=+0(%si):string"))
	b.detour("filter-no", prog("p f a=%di if a == 99999999999"))
	b.yardstick("floor-record", floorRecord)
	b.detour("record", prog("p f a=%di b=%si"))
	leftAlone := func(name string, probe Probe, emptied bool) {
		b.add(name, func(base uint64, tail func(c *asm.Code) error) ([]byte, error) {
			p := b.both()
			p.Overwrite = true
			if !emptied {
				p.PerCPU = leftAt
			}
			d, err := Build(base, p, []Probe{probe}, tail)
			if err != nil {
				return nil, err
			}
			return d.Code, nil
		})
	}
	leftAlone("left-emptied", prog("p f a=%di b=%si"), true)
	leftAlone("left", prog("p f a=%di b=%si"), false)
	b.detour("record-typed", prog("p f a=%di:s32 b=%si:u8")) // as parameters by debug information are
	b.detour("string", prog("p f a=%di b=%si s=+0(%si):string"))
	b.detour("deref", prog("p f a=%di b=+0(%si):u32"))
	pool := uint64(poolAt)
	ways := b.common(b.both())
	ret := func(name, text string, latency bool) {
		b.add(name, func(base uint64, tail func(c *asm.Code) error) ([]byte, error) {
			pr := prog(text)
			if latency {
				// What an entry's time compiles to.
				pr.Program.Entry = []fetch.Capture{{Chain: fetch.Chain{Source: fetch.SourceTime}}}
				pr.Program.Args[1].Chain = fetch.Chain{Source: fetch.SourceEntry}
			}
			p, err := NewPool(pool, pr.Program, 16, maxStripes)
			if err != nil {
				return nil, err
			}
			copy(b.at(pool), p.Head(ways))
			pool += 4096
			r, err := BuildReturn(base, b.both(), pr, p, tail)
			if err != nil {
				return nil, err
			}
			return r.Code, nil
		})
	}
	ret("return", "r f v=$retval", false)
	ret("latency", "r f v=$retval t=%di", true)
	res := b.run(200000, 15, threads)
	for _, n := range b.names {
		t.ReportMetric(res[n], n+"-ns")
	}
	t.ReportMetric(res["record-typed"]/res["record"], "typed-ratio")
	t.ReportMetric(0, "ns/op")
}

// BenchmarkVector is what a std::vector of eight ints costs beside a text of as many
// bytes: at most three times as much.
func BenchmarkVector(t *testing.B) {
	if !hasRdpid() {
		fixture.Missing(t, "a CPU with rdpid")
	}
	b := newBench(t)
	const vector, text = dataAt, dataAt + 64
	b.put64(vector, text)
	b.put64(vector+8, text+32)
	for i := range uint64(4) {
		b.put64(text+8*i, 0x6161616161616161)
	}
	b.put64(text+32, 0)
	prog := func(def string) Probe {
		p, err := compile(def)
		if err != nil {
			t.Fatal(err)
		}
		return Probe{ID: uint32(len(b.names) + 1), Program: p}
	}
	b.add("bare", nil)
	str := prog(fmt.Sprintf("p f a=%%di s=@%#x:string", uint64(text)))
	b.detour("string", str)
	vec := prog(fmt.Sprintf("p f a=%%di s=@%#x:string", uint64(text)))
	a := &vec.Program.Args[1]
	at := fetch.Chain{Source: fetch.SourceImm, Imm: vector}
	n := fetch.Chain{Source: fetch.SourceComputed, From: fetch.SourceImm, Imm: vector, Steps: []fetch.Step{{Op: fetch.StepDiff, Imm: 8}}}
	a.Chain, a.Store, a.Len, a.Unit, a.Max = at, fetch.StoreCounted, &n, 1, 32
	a.Loads = []fetch.Load{{}}
	b.detour("vector", vec)
	res := b.run(200000, 15, 1)
	for _, n := range b.names {
		t.ReportMetric(res[n], n+"-ns")
	}
	t.ReportMetric(res["vector"]/res["string"], "ratio")
	t.ReportMetric(0, "ns/op")
}
