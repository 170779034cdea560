package detour

import (
	"bytes"
	"encoding/binary"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// callsHook is a function that calls the test program's hook with its first
// argument and returns what that returns, plus one.
func callsHook(c *asm.Code, _ asm.Label) {
	c.OpImm(asm.Sub, asm.W64, asm.SP, 8)
	c.MovImm(asm.AX, hookAt)
	c.CallMem(asm.At(asm.AX, 0))
	c.OpImm(asm.Add, asm.W64, asm.SP, 8)
	c.OpImm(asm.Add, asm.W64, asm.AX, 1)
	c.Ret()
}

// returnValues is what checkReturn looks at, of a function that returns one more
// than its argument, and of whose calls those from 300 on are filtered out.
const returnValues = "r f v=$retval a=$arg1 s=+0($arg2):string sp=$stack ip=%ip e=+0($arg1):u64 t=$time if a < 300"

// checkReturn decodes the record of return i of probe 5, into vals.
func checkReturn(t *testing.T, prog *fetch.Program, r *ring.Record, i uint64, vals []fetch.Value) []fetch.Value {
	t.Helper()
	data := r.Data[:len(r.Data)-ReturnTail]
	ra := binary.LittleEndian.Uint64(r.Data[len(data):])
	vals, err := prog.Decode(data, vals)
	if err != nil {
		t.Fatal(err)
	}
	if r.ID != 5 || vals[0].Int != i+1 || vals[1].Int != i || string(vals[2].Bytes) != "hello, world" ||
		vals[3].Int&15 != 0 || vals[4].Int != ra || ra == 0 || !vals[5].Fault {
		t.Errorf("return %d: %+v to %#x", i, vals, ra)
	}
	return vals
}

func TestReturnValues(t *testing.T) {
	const n = 500
	g := newTarget(t, ring.MinRingSize)
	var code *Return
	prog := g.program(returnValues)
	g.function(callsHook, g.returns(5, returnValues, 3,
		func(r *Return, p Pool) { code = r }))
	var vals []fetch.Value
	i := uint64(0)
	times := TimeSlots(prog)
	g.run("plain", 1, n, func(r *ring.Record) error {
		vals = checkReturn(t, prog, r, i, vals)
		if len(times) != 1 || binary.LittleEndian.Uint64(r.Data[times[0]:]) != r.TSC {
			t.Errorf("time at %v isn't the record's", times)
		}
		i++
		return nil
	})
	if c := g.counts(5); i != 300 || c.Hits != n || c.Filtered != n-300 || c.Missed != 0 || c.Lost != 0 {
		t.Errorf("%d records, %+v", i, c)
	}
	for _, number := range []int{1, 2, 3} {
		if got := code.Instance(code.Trampoline(number)); got != number {
			t.Errorf("return trampoline %d is instance %d's", number, got)
		}
	}
	if code.Instance(code.Trampoline(1)-stubSize) != 0 || code.Instance(code.Trampoline(3)+stubSize) != 0 {
		t.Error("addresses outside of the return trampolines are an instance's")
	}
}

// More calls at a time than instances: those left over are unprobed. All
// instances can be in use at once, whatever the CPU.
func TestReturnMissed(t *testing.T) {
	const n = 64
	for _, instances := range []int{1, 5, 8, 33} {
		g := newTarget(t, ring.MinRingSize)
		deep := func(c *asm.Code, self asm.Label) { recursing(c, self, c.Ret) }
		g.function(deep, g.returns(6, "r f v=$retval", instances, nil))
		var hits uint64
		sums := g.run("plain", 1, n, func(*ring.Record) error { hits++; return nil })
		var calls, want, seen uint64
		for i := range uint64(n) {
			calls += i + 1
			seen += min(i+1, uint64(instances))
			want += 2 * i
		}
		if c := g.counts(6); c.Hits != seen || c.Missed != calls-seen || hits+c.Lost != seen || sums[0] != want {
			t.Errorf("%d instances: %+v, %d records, sum %d; want %d hits, %d missed, sum %d", instances, c, hits, sums[0], seen, calls-seen, want)
		}
	}
}

// After fork both processes return through the same return trampoline, each to its own
// caller, whatever the other does meanwhile.
func TestReturnFork(t *testing.T) {
	const n, threads = 1000, 2
	g := newTarget(t, 4<<20)
	g.function(callsHook, g.returns(7, "r f v=$retval", 4, nil))
	for _, s := range g.run("fork", threads, n, func(*ring.Record) error { return nil }) {
		if want := uint64(n*(n-1)/2 + n); s != want {
			t.Errorf("sum %d, want %d", s, want)
		}
	}
	children := uint64(threads * (n / 97))
	if c := g.counts(7); c.Hits < threads*n+children || c.Missed != 0 {
		t.Errorf("%+v, want %d hits and more", c, threads*n+children)
	}
}

// A call that is left by longjmp keeps its instance until the thread comes to
// the same slot with no other instance free: no call is missed for it.
func TestReturnLongjmp(t *testing.T) {
	const n = 1000
	g := newTarget(t, 4<<20)
	g.function(callsHook, g.returns(8, "r f v=$retval", 4, nil))
	g.run("jump", 1, n, func(*ring.Record) error { return nil })
	if c := g.counts(8); c.Hits != n-n/97 || c.Missed != 0 {
		t.Errorf("%+v, want %d hits", c, n-n/97)
	}
}

// nextFree is the number of the free instance after k in the list of its stripe; 0: none is.
func nextFree(p Pool, mem []byte, k uint32) uint32 {
	if n := binary.LittleEndian.Uint32(mem[p.offset(int(k))+instNext:]); n != 0 {
		return n - 1
	}
	if n := k + uint32(p.Stripes); int(n) <= p.Count {
		return n
	}
	return 0
}

// freeInstances counts the free instances, each of which must be free once.
func freeInstances(t *testing.T, p Pool, mem []byte) int {
	le := binary.LittleEndian
	seen := map[uint32]bool{}
	for s := range p.Stripes {
		for k := le.Uint32(mem[stripeSize*s+4:]); k != 0; k = nextFree(p, mem, k) {
			if seen[k] || int(k) > p.Count || int(k-1)%p.Stripes != s {
				t.Fatalf("instance %d of %+v in stripe %d", k, p, s)
			}
			seen[k] = true
		}
	}
	return len(seen)
}

func TestPool(t *testing.T) {
	prog, err := compile("r f a=$arg1 b=$arg2 c=$arg3 d=$arg4 e=$arg5")
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPool(0x1000, prog, 3, maxStripes)
	if err != nil || 1<<p.Shift < instEntry+prog.EntrySize() {
		t.Fatalf("%+v, %v", p, err)
	}
	whole := func(p Pool) []byte { return append(p.Head(&Shared{}), make([]byte, p.Count<<p.Shift)...) }
	mem := whole(p)
	if len(mem) != p.Size() || len(p.Used(mem)) != 0 {
		t.Errorf("fresh pool: %d bytes, %v in use", len(mem), p.Used(mem))
	}
	le := binary.LittleEndian
	for _, count := range []int{1, 2, 3, 4, 7, 64, 1000} {
		q, err := NewPool(0x1000, prog, count, maxStripes)
		if err != nil {
			t.Fatal(err)
		}
		if n := freeInstances(t, q, whole(q)); n != count {
			t.Errorf("%d free instances of %d", n, count)
		}
	}
	le.PutUint32(mem[p.offset(2)+instTID:], 77)
	le.PutUint64(mem[p.offset(2)+instSlot:], 0x7fff)
	le.PutUint64(mem[p.offset(2)+instReturn:], 0x4242)
	le.PutUint64(mem[p.offset(2)+instReal:], 0x4243)
	want := Instance{2, 77, 0x7fff, 0x4242, 0x4243}
	if u := p.Used(mem); len(u) != 1 || u[0] != want {
		t.Errorf("in use: %+v, want %+v", u, want)
	}
	p.Free(mem, 2)
	p.Free(mem, 2)
	p.Free(mem, 4)
	p.Free(mem, 0)
	if u := p.Used(mem); len(u) != 0 {
		t.Errorf("in use after Free: %+v", u)
	}
	le.PutUint32(mem[p.offset(2)+instTID:], 77)
	if u := p.Used(mem[:p.offset(2)]); len(u) != 0 {
		t.Errorf("in use beyond the memory: %+v", u)
	}
	for _, n := range []int{0, -1, MaxInstances + 1} {
		if _, err := NewPool(0x1000, prog, n, maxStripes); err == nil {
			t.Errorf("a pool of %d", n)
		}
	}
}

// A signal handler that hits the probes which it interrupted, at any
// instruction of their detours, takes its own records and instances.
func TestHandlerHitsProbes(t *testing.T) {
	t.Run("locked", func(t *testing.T) { handlerHits(t, 0) })
	t.Run("sequences", func(t *testing.T) { handlerHits(t, rseqArea(t)) })
}

func handlerHits(t *testing.T, rseq int32) {
	t.Helper()
	const threads, n = 4, 200000
	g := newTarget(t, 4<<20)
	g.share(rseq)
	progs := map[uint32]*fetch.Program{1: g.program("p f a=%di s=+0(%si):string"), 2: g.program("r f v=$retval")}
	g.function(func(c *asm.Code, _ asm.Label) { c.Ret() }, func(base uint64, tail func(c *asm.Code) error) ([]byte, error) {
		d, err := Build(base, g.params(), []Probe{{ID: 1, Program: progs[1]}}, tail)
		if err != nil {
			return nil, err
		}
		return d.Code, nil
	})
	g.function(func(c *asm.Code, _ asm.Label) { c.Ret() }, g.returns(2, "r f v=$retval", 256, nil))
	var vals []fetch.Value
	got := map[uint32]uint64{}
	sums := g.run("signal", threads, n, func(r *ring.Record) error {
		got[r.ID]++
		data := r.Data
		if r.ID == 2 {
			data = data[:len(data)-ReturnTail]
		}
		var err error
		if vals, err = progs[r.ID].Decode(data, vals); err != nil || vals[0].Int >= n || r.ID == 1 && string(vals[1].Bytes) != "hello, world" {
			t.Errorf("probe %d: %+v, %v", r.ID, vals, err)
		}
		return nil
	})
	for _, s := range sums[:threads] {
		if want := uint64(n * (n - 1)); s != want {
			t.Errorf("sum %d, want %d", s, want)
		}
	}
	for id := range uint32(2) {
		c := g.counts(id + 1)
		if want := threads*n + sums[threads]; c.Hits+c.Missed != want || c.Hits != got[id+1]+c.Lost || c.Missed != 0 {
			t.Errorf("probe %d: %+v and %d records, want %d hits", id+1, c, got[id+1], want)
		}
	}
	if sums[threads] == 0 {
		t.Error("no signal came")
	}
}

// TestTakeCPU wants a call that takes an instance to learn its CPU from the thread's rseq area:
// lsl, which is used where there is none, costs more than all the rest on some machines.
func TestTakeCPU(t *testing.T) {
	lsl := []byte{0x0f, 0x03}
	for _, tt := range []struct {
		rseq int32
		want bool
	}{{0, true}, {0x920, false}} {
		s, err := BuildShared(codeAt, &Params{TID: TID{Seg: asm.FS, Off: 0x2d0}, Rseq: tt.rseq})
		if err != nil {
			t.Fatal(err)
		}
		code := s.Code[s.take-s.Base:]
		hot, _, _ := bytes.Cut(code, []byte{0xf0}) // up to the lock
		if got := bytes.Contains(hot, lsl); got != tt.want {
			t.Errorf("rseq area at %#x: lsl is %v, want %v", tt.rseq, got, tt.want)
		}
	}
}
