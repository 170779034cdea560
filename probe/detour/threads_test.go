package detour

import (
	"encoding/binary"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

const (
	textAt = 0x2100_4443_2000
	fileAt = 0x2400_1230_0000
	poolAt = 0x2700_5551_1000
	// seenPoolAt is for pools whose end a test looks at.
	seenPoolAt = 0x2700_6551_1000
	hookAt     = 0x1020_0000

	protPrivate = 8
)

// target is a process of many threads whose functions are probed, and whose
// memory file is read while it runs.
type target struct {
	*space
	l     *ring.Layout
	code  uint64
	addrs []string
	pools uint64
	ways  *Shared // what return probes share
	rseq  int32   // Params.Rseq
	// stacks are what factors of tables are chosen by (Spread).
	stacks []uint64
	ample  bool // Params.Ample
}

func newTarget(t *testing.T, rings int) *target { return newTargetOf(t, 8, rings) }

// newTargetOf has a ring for each of so many CPUs.
func newTargetOf(t *testing.T, cpus, rings int) *target {
	t.Helper()
	l, err := ring.New(ring.Params{CPUs: cpus, MaxProbes: 63, RingSize: rings, Fallback: 4096, Instances: 4096, Code: 4096, MaxMaps: 16})
	if err != nil {
		t.Fatal(err)
	}
	g := &target{space: newSpace(t), l: l, code: textAt, pools: poolAt}
	g.add(textAt, 1<<20, protRX)
	g.add(fileAt, uint64(l.Size), protRW)
	g.add(poolAt, 1<<20, protRW|protPrivate)
	g.add(seenPoolAt, 1<<20, protRW)
	g.add(hookAt, 4096, protRW|protPrivate)
	g.open()
	for n := range l.NumRings() {
		g.put64(fileAt+uint64(l.RingWord(n, ring.DataPtr)), fileAt+uint64(l.RingData(n)))
		g.put64(fileAt+uint64(l.RingWord(n, ring.MaskOff)), uint64(l.RingSize-1))
	}
	binary.LittleEndian.PutUint32(g.at(fileAt+uint64(l.Flags.Off)+ring.SeqCPUs), uint32(l.CPUs))
	for id := uint32(1); id < 64; id++ {
		binary.LittleEndian.PutUint32(g.at(fileAt+uint64(l.Flag(id))), ring.FlagEnabled)
	}
	g.share(0)
	return g
}

// share puts shared code behind the other code, for threads that have an rseq area there.
func (g *target) share(rseq int32) {
	g.t.Helper()
	g.rseq = rseq
	ways, err := BuildShared(g.code, g.params())
	if err != nil {
		g.t.Fatal(err)
	}
	copy(g.at(g.code), ways.Code)
	g.code += uint64(len(ways.Code)+63) &^ 63
	g.ways = ways
}

func (g *target) params() *Params {
	return &Params{PerCPU: fileAt + uint64(g.l.PerCPU.Off), AreaShift: g.l.AreaShift, CPUMask: g.l.CPUMask, RingSize: g.l.RingSize,
		Flags: fileAt + uint64(g.l.Flags.Off), TID: TID{Seg: asm.FS, Off: 0x2d0}, Rdpid: hasRdpid(), Shared: g.ways,
		FSGSBase: g.rseq != 0, Rseq: g.rseq, Ample: g.ample}
}

// function lays a function out that starts with seven bytes, lea rax, [rdi];
// rest emits the others. probe makes the code that displaces them.
func (g *target) function(rest func(c *asm.Code, self asm.Label), probe func(base uint64, tail func(c *asm.Code) error) ([]byte, error)) {
	g.t.Helper()
	c := asm.New(g.code)
	self, out := c.Mark(), c.NewLabel()
	c.Jmp(out)
	c.Nop(2)
	back := c.Here()
	rest(c, self)
	c.Align(64, 0xcc)
	c.Bind(out)
	code, err := probe(c.Here(), func(c *asm.Code) error {
		c.Lea(asm.AX, asm.At(asm.DI, 0))
		c.JmpAddr(back)
		return nil
	})
	if err != nil {
		g.t.Fatal(err)
	}
	c.Raw(code...)
	c.Align(64, 0xcc)
	all := assemble(g.t, c)
	if len(all) > len(g.at(g.code)) {
		g.t.Fatal("no room for code")
	}
	copy(g.at(g.code), all)
	g.addrs = append(g.addrs, hex(g.code))
	g.code += uint64(len(all))
}

func (g *target) program(text string) *fetch.Program {
	g.t.Helper()
	p, err := compile(text)
	if err != nil {
		g.t.Fatal(err)
	}
	return p
}

// returns makes the probe function of a return probe.
func (g *target) returns(id uint32, text string, count int, made func(*Return, Pool)) func(base uint64, tail func(c *asm.Code) error) ([]byte, error) {
	return func(base uint64, tail func(c *asm.Code) error) ([]byte, error) {
		prog := g.program(text)
		pool, err := NewPool(g.pools, prog, count, maxStripes)
		if err != nil {
			return nil, err
		}
		copy(g.at(pool.Addr), pool.Head(g.ways))
		g.pools += uint64(pool.Size()+63) &^ 63
		r, err := BuildReturn(base, g.params(), Probe{ID: id, Program: prog, IP: base}, pool, tail)
		if err != nil {
			return nil, err
		}
		if made != nil {
			made(r, pool)
		}
		return r.Code, nil
	}
}

// run runs the threads and reads their records; it returns their sums.
func (g *target) run(how string, threads, n int, emit func(*ring.Record) error) []uint64 {
	g.t.Helper()
	args := append([]string{g.path, how, strconv.Itoa(threads), strconv.Itoa(n)}, g.addrs...)
	cmd := exec.Command(fixture.Build(g.t, "detour_threads.c", "-O1"), args...)
	var out, diag strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &diag
	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	rd, err := ring.NewReader(g.at(fileAt)[:g.l.Size], g.l, ring.Options{})
	if err != nil {
		g.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for running := true; running; {
		select {
		case err := <-ended:
			if err != nil {
				g.t.Fatalf("child: %v %s", err, diag.String())
			}
			running = false
		default:
			if k, err := rd.Poll(emit); err != nil {
				g.t.Fatal(err)
			} else if k == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	}
	if _, err := rd.Finish(emit); err != nil {
		g.t.Fatal(err)
	}
	if s := rd.Stats(); s.Corrupt != 0 || s.Abandoned != 0 {
		g.t.Errorf("reader: %+v", s)
	}
	var sums []uint64
	for _, f := range strings.Fields(out.String()) {
		v, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			g.t.Fatal(err)
		}
		sums = append(sums, v)
	}
	return sums
}

func (g *target) counts(id uint32) ring.Counts {
	g.t.Helper()
	c, err := ring.NewCounters(g.at(fileAt)[:g.l.Size], g.l)
	if err != nil {
		g.t.Fatal(err)
	}
	return c.Probe(id)
}

// Eight threads hit all kinds of probe while a reader takes the records: every
// hit is a record, filtered or lost, and every record is right.
func TestThreads(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rings int
		n     int
		full  bool
		rseq  int32
		none  bool // the threads have no area where others have one
	}{
		{"room", 16 << 20, 3000, false, 0, false}, {"full", ring.MinRingSize, 20000, true, 0, false},
		{"sequences", 16 << 20, 3000, false, rseqArea(t), false}, {"full, in sequences", ring.MinRingSize, 20000, true, rseqArea(t), false},
		{"no areas", 16 << 20, 3000, false, rseqArea(t), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const threads = 8
			g := newTarget(t, tt.rings)
			g.share(tt.rseq)
			if tt.none {
				t.Setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
			}
			leaf := func(c *asm.Code, _ asm.Label) { c.Ret() }
			plain := func(probes ...Probe) func(base uint64, tail func(c *asm.Code) error) ([]byte, error) {
				return func(base uint64, tail func(c *asm.Code) error) ([]byte, error) {
					d, err := Build(base, g.params(), probes, tail)
					if err != nil {
						return nil, err
					}
					return d.Code, nil
				}
			}
			progs := map[uint32]*fetch.Program{}
			probe := func(id uint32, text string) Probe {
				progs[id] = g.program(text)
				return Probe{ID: id, Program: progs[id]}
			}
			count := probe(3, "p f if tid != 0")
			count.CountOnly = true
			g.function(leaf, plain(probe(1, "p f a=%di s=+0(%si):string"), probe(2, "p f a=%di if a < 1000"), count))
			progs[4] = g.program("r f v=$retval")
			g.function(func(c *asm.Code, self asm.Label) {
				c.OpImm(asm.Add, asm.W64, asm.AX, 100)
				shallow(c, self, c.Ret) // f(i) = i & 15 calls deep, returns i + that
			}, g.returns(4, "r f v=$retval", threads*16, nil))
			var vals []fetch.Value
			got := map[uint32]uint64{}
			sums := g.run("plain", threads, tt.n, func(r *ring.Record) error {
				got[r.ID]++
				data := r.Data
				if r.ID == 4 {
					data = data[:len(data)-ReturnTail]
					if ra := binary.LittleEndian.Uint64(r.Data[len(data):]); ra == 0 {
						t.Error("no return address")
					}
				}
				var err error
				if vals, err = progs[r.ID].Decode(data, vals); err != nil {
					t.Errorf("probe %d: %v", r.ID, err)
				}
				if r.ID == 1 && (vals[0].Int >= uint64(tt.n) || string(vals[1].Bytes) != "hello, world") || r.ID == 2 && vals[0].Int >= 1000 {
					t.Errorf("probe %d: %+v", r.ID, vals)
				}
				return nil
			})
			var want, deep uint64
			for i := range uint64(tt.n) {
				// f's values down the recursion: each level adds 2 to the innermost's
				want += i + (i &^ 15) + 100 + 2*(i&15)
				deep += i&15 + 1
			}
			for i, s := range sums {
				if s != want {
					t.Errorf("thread %d: sum %d, want %d", i, s, want)
				}
			}
			all := uint64(threads * tt.n)
			hits := map[uint32]uint64{1: all, 2: all, 3: all, 4: deep * threads}
			var lost uint64
			for id, h := range hits {
				c := g.counts(id)
				if c.Hits != h || c.Missed != 0 {
					t.Errorf("probe %d: %+v, want %d hits", id, c, h)
				}
				if recs := got[id]; id != 3 && c.Hits != recs+c.Filtered+c.Lost || c.Filtered != b2i(id == 2)*(all-1000*threads) {
					t.Errorf("probe %d: %d records, %+v", id, recs, c)
				}
				lost += c.Lost
			}
			if len(sums) != threads || (lost > 0) != tt.full {
				t.Errorf("%d threads, %d lost", len(sums), lost)
			}
		})
	}
}

// returning makes the function one that returns at once, with a probe 1 there.
func (g *target) returning(prog *fetch.Program) {
	g.function(func(c *asm.Code, _ asm.Label) { c.Ret() }, func(base uint64, tail func(c *asm.Code) error) ([]byte, error) {
		d, err := Build(base, g.params(), []Probe{{ID: 1, Program: prog}}, tail)
		if err != nil {
			return nil, err
		}
		return d.Code, nil
	})
}

// TestOneRing: threads of several CPUs that race for one ring's room, as those do
// that are moved to another CPU in a detour, get room of their own each. The ring
// holds a round's records, however late the reader comes: none is lost.
func TestOneRing(t *testing.T) {
	const threads, n, rounds, room = 4, 200_000, 3, 32 << 20
	if threads*n*(ring.HeaderSize+8) > room {
		t.Fatal("a round may be too much for the ring")
	}
	g := newTargetOf(t, 1, room)
	prog := g.program("p f a=%di")
	g.returning(prog)
	var vals []fetch.Value
	for round := range rounds {
		next := map[uint32]uint64{}
		g.run("plain", threads, n, func(r *ring.Record) error {
			var err error
			if vals, err = prog.Decode(r.Data, vals); err != nil {
				return err
			}
			if r.ID != 1 || vals[0].Int != next[r.TID] {
				t.Fatalf("thread %d: hit %d of probe %d where %d is next", r.TID, vals[0].Int, r.ID, next[r.TID])
			}
			next[r.TID]++
			return nil
		})
		if c := g.counts(1); c.Hits != threads*n*uint64(round+1) || c.Recorded != c.Hits || c.Lost != 0 || len(next) != threads {
			t.Errorf("%+v of %d threads", c, len(next))
		}
	}
}

// TestLaps: a ring that is emptied in time takes records lap after lap, each with
// the time of its hit.
func TestLaps(t *testing.T) {
	const laps, n = 6, ring.MinRingSize / 64
	g := newTargetOf(t, 1, ring.MinRingSize)
	prog := g.program("p f a=%di s=+0(%si):string")
	g.returning(prog)
	var vals []fetch.Value
	records, bytes := 0, 0
	for range laps {
		from, i := ring.SystemClock{}.TSC(), uint64(0)
		g.run("plain", 1, n, func(r *ring.Record) error {
			var err error
			if vals, err = prog.Decode(r.Data, vals); err != nil {
				return err
			}
			if vals[0].Int != i || string(vals[1].Bytes) != "hello, world" || r.TSC < from || r.TSC > (ring.SystemClock{}).TSC() {
				t.Fatalf("record %d: %+v at %d", i, vals, r.TSC)
			}
			i++
			bytes += ring.HeaderSize + len(r.Data)
			return nil
		})
		records += int(i)
	}
	if c := g.counts(1); records != laps*n || c.Lost != 0 || c.Hits != laps*n || bytes < 2*ring.MinRingSize {
		t.Errorf("%d records of %d bytes, %+v", records, bytes, c)
	}
}
