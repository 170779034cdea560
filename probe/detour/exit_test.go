package detour

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// exits lays out a function whose exits are probed. body emits it, and each of
// its exits by leave; entries are probes of its entry.
func (g *target) exits(id uint32, text string, count int, body func(c *asm.Code, self asm.Label, leave leaver), entries ...Probe) Calls {
	g.t.Helper()
	prog := g.program(text)
	k, err := NewCalls(g.pools, prog, count)
	if err != nil {
		g.t.Fatal(err)
	}
	k.SetFactor(Spread(g.stacks))
	copy(g.at(k.Addr), k.Head(g.ways))
	g.pools += uint64(k.Size()+63) &^ 63
	probe := Probe{ID: id, Program: prog}
	g.function(func(c *asm.Code, self asm.Label) {
		body(c, self, func() {
			d, err := BuildLeave(c.Here(), g.params(), probe, k, 0, func(c *asm.Code) error { c.Ret(); return nil })
			if err != nil {
				g.t.Fatal(err)
			}
			c.Raw(d.Code...)
		})
	}, func(base uint64, tail func(c *asm.Code) error) ([]byte, error) {
		d, err := BuildEnter(base, g.params(), entries, probe, k, tail)
		if err != nil {
			return nil, err
		}
		return d.Code, nil
	})
	return k
}

// leaver emits a probed return.
type leaver = func()

// inUse is how many rows are in use.
func (g *target) inUse(k Calls) int { return len(k.Used(g.at(k.Addr)[:k.Size()])) }

// hooked calls the hook, as callsHook, and has three returns, of which one is
// behind a jump to another function.
func hooked(c *asm.Code, _ asm.Label, leave leaver) {
	odd, start, other := c.NewLabel(), c.NewLabel(), c.NewLabel()
	c.Jmp(start)
	c.Bind(other)
	leave()
	c.Bind(start)
	c.Push(asm.BX)
	c.Mov(asm.W64, asm.BX, asm.DI)
	c.MovImm(asm.AX, hookAt)
	c.CallMem(asm.At(asm.AX, 0))
	c.OpImm(asm.Add, asm.W64, asm.AX, 1)
	c.TestImm(asm.W32, asm.BX, 1)
	c.Pop(asm.BX)
	c.Jcc(asm.NE, odd)
	leave()
	c.Bind(odd)
	c.TestImm(asm.W32, asm.AX, 2)
	c.Jcc(asm.E, other)
	leave()
}

func TestLeaveValues(t *testing.T) {
	const n = 500
	for _, count := range []int{1, 3, 200, -3} {
		g := newTarget(t, 1<<20)
		count, g.ample = max(count, -count), count < 0
		k := g.exits(5, returnValues, count, hooked)
		prog := g.program(returnValues)
		var vals []fetch.Value
		i := uint64(0)
		g.run("plain", 1, n, func(r *ring.Record) error {
			vals = checkReturn(t, prog, r, i, vals)
			i++
			return nil
		})
		if c := g.counts(5); i != 300 || c.Hits != n || c.Filtered != n-300 || c.Missed != 0 || c.Lost != 0 {
			t.Errorf("%d records, %+v", i, c)
		}
		if u := g.inUse(k); u != 0 {
			t.Errorf("%d calls are left", u)
		}
	}
}

// Where few returns are probed, entries note their calls without the shared code, and exits need no
// word of the stack for them: what is recorded is right. Only a return address that could be a
// trampoline's, as that of the outermost calls may be, is looked at there.
func TestEnterNotesItself(t *testing.T) {
	const n, text = 1000, "r f v=$retval a=$arg1 t=+0($arg1):u8[4] c=$cpu id=$tid"
	for _, ample := range []bool{false, true} {
		g := newTarget(t, 8<<20)
		g.ample = ample
		k := g.exits(5, text, 1024, shallow)
		c := asm.New(g.code)
		c.MovImm(asm.DX, seenPoolAt)
		c.IncMem(asm.W64, asm.At(asm.DX, 0))
		c.JmpAddr(g.ways.note)
		code, err := c.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		copy(g.at(g.code), code)
		binary.LittleEndian.PutUint64(g.at(k.Addr)[headNote:], g.code)
		prog := g.program(text)
		var vals []fetch.Value
		var got, calls uint64
		g.run("plain", 1, n, func(r *ring.Record) error {
			var err error
			if vals, err = prog.Decode(r.Data[:len(r.Data)-ReturnTail], vals); err != nil {
				return err
			}
			if a := vals[1].Int; vals[0].Int != a&^15+2*(a&15) || !vals[2].Fault || uint32(vals[4].Int) != r.TID {
				t.Errorf("%+v", vals)
			}
			got++
			return nil
		})
		for i := range uint64(n) {
			calls += i&15 + 1
		}
		if c := g.counts(5); got != calls || c.Hits != calls || c.Missed != 0 || c.Lost != 0 {
			t.Errorf("%d records of %d calls, %+v", got, calls, c)
		}
		if u := g.inUse(k); u != 0 {
			t.Errorf("%d calls are left", u)
		}
		if shared := binary.LittleEndian.Uint64(g.at(seenPoolAt)); ample && shared > n || !ample && shared != calls {
			t.Errorf("ample %v: the shared code has noted %d of %d calls", ample, shared, calls)
		}
	}
}

// Probes of the entry in the same detour take their hits first, and each is
// switched by itself.
func TestEnterWithEntries(t *testing.T) {
	const n = 400
	for _, off := range []int{0, 5, 6, 7, -8, -5, -6, -7} {
		g := newTarget(t, 1<<20)
		if g.ample = off < 0; g.ample {
			off = -off % 8
		}
		a, b := g.program("p f a=$arg1 s=+0($arg2):string"), g.program("p f n=$arg1 if n >= 100")
		k := g.exits(5, "r f v=$retval a=$arg1", 3, hooked, Probe{ID: 6, Program: a}, Probe{ID: 7, Program: b, CountOnly: true})
		if off != 0 {
			binary.LittleEndian.PutUint32(g.at(g.params().Flags+4*uint64(off)), 0)
		}
		var vals []fetch.Value
		var order []uint32
		i := uint64(0)
		g.run("plain", 1, n, func(r *ring.Record) error {
			order = append(order, r.ID)
			prog, data, last := a, r.Data, 6
			if r.ID == 5 {
				prog, data, last = g.program("r f v=$retval a=$arg1"), r.Data[:len(r.Data)-ReturnTail], 5
			}
			var err error
			if vals, err = prog.Decode(data, vals); err != nil {
				t.Fatal(err)
			}
			if last == 6 && (vals[0].Int != i || string(vals[1].Bytes) != "hello, world") || last == 5 && (vals[0].Int != i+1 || vals[1].Int != i) {
				t.Errorf("call %d: probe %d, %+v", i, r.ID, vals)
			}
			if last == 5 || off == 5 {
				i++
			}
			return nil
		})
		for _, x := range []struct {
			id   int
			want ring.Counts
		}{{5, ring.Counts{Hits: n, Recorded: n}}, {6, ring.Counts{Hits: n, Recorded: n}}, {7, ring.Counts{Hits: n, Filtered: 100}}} {
			if off == x.id {
				x.want = ring.Counts{}
			}
			if c := g.counts(uint32(x.id)); c.Hits != x.want.Hits || c.Filtered != x.want.Filtered || c.Missed != 0 || c.Lost != 0 {
				t.Errorf("%d is off: probe %d %+v, want %+v", off, x.id, c, x.want)
			}
		}
		for j := range order {
			if want := uint32(6 - j%2); off%7 == 0 && order[j] != want {
				t.Fatalf("record %d is of probe %d", j, order[j])
			}
		}
		if u := g.inUse(k); u != 0 {
			t.Errorf("%d calls are left", u)
		}
	}
}

// recursing calls itself as often as its argument says, and shallow as often as
// the argument's low four bits say; both return 2 more for each call.
func recursing(c *asm.Code, self asm.Label, leave leaver) {
	c.Test(asm.W64, asm.DI, asm.DI)
	recurse(c, self, leave)
}

func shallow(c *asm.Code, self asm.Label, leave leaver) {
	c.TestImm(asm.W32, asm.DI, 15)
	recurse(c, self, leave)
}

// recurse calls itself with one less, unless the flags say zero.
func recurse(c *asm.Code, self asm.Label, leave leaver) {
	out := c.NewLabel()
	c.Jcc(asm.E, out)
	c.OpImm(asm.Sub, asm.W64, asm.DI, 1)
	c.OpImm(asm.Sub, asm.W64, asm.SP, 8)
	c.Call(self)
	c.OpImm(asm.Add, asm.W64, asm.SP, 8)
	c.OpImm(asm.Add, asm.W64, asm.AX, 2)
	c.Bind(out)
	leave()
}

// More calls at a time than may be followed: the outermost are.
func TestLeaveMissed(t *testing.T) {
	const n, threads = 150, 1
	for _, count := range []int{1, 5, 64, 65, 100, -1, -5, -100} {
		g := newTarget(t, 4<<20)
		count, g.ample = max(count, -count), count < 0
		k := g.exits(6, "r f v=$retval n=$arg1", count, recursing)
		var hits uint64
		sums := g.run("plain", threads, n, func(*ring.Record) error { hits++; return nil })
		var calls, want, seen uint64
		for i := range uint64(n) {
			calls += i + 1
			seen += min(i+1, uint64(count))
			want += 2 * i
		}
		if c := g.counts(6); c.Hits != seen || c.Missed != calls-seen || hits+c.Lost != seen || sums[0] != want {
			t.Errorf("%d instances: %+v, %d records, sum %d; want %d hits, %d missed, sum %d", count, c, hits, sums[0], seen, calls-seen, want)
		}
		if u := g.inUse(k); u != 0 {
			t.Errorf("%d calls are left", u)
		}
	}
}

// Calls that are left by longjmp give their rows up when others need them.
func TestLeaveLongjmp(t *testing.T) {
	const n = 1000
	for _, count := range []int{1, 4, 5, 100, -1, -4} {
		g := newTarget(t, 4<<20)
		count, g.ample = max(count, -count), count < 0
		if count == 5 {
			g.stacks = []uint64{0x7ffc_1234_5678, 0x7f12_3456_7ee0}
		}
		k := g.exits(8, "r f v=$retval a=$arg1", count, hooked)
		g.run("jump", 1, n, func(*ring.Record) error { return nil })
		if c := g.counts(8); c.Hits != n-n/97 || c.Missed != 0 {
			t.Errorf("%d instances: %+v, want %d hits", count, c, n-n/97)
		}
		if u := g.inUse(k); u > 1 {
			t.Errorf("%d calls are left", u)
		}
	}
}

func TestLeaveFork(t *testing.T) {
	const n, threads = 1000, 2
	g := newTarget(t, 4<<20)
	g.exits(7, "r f v=$retval a=$arg1", 8, hooked)
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

// Eight threads, each deep in its own calls, signal handlers among them: every
// call is followed or counted as missed, and has its own entry's values.
func TestLeaveThreads(t *testing.T) {
	for _, how := range []string{"plain", "signal", "spread plain", "spread signal", "ample plain", "ample signal"} {
		for _, count := range []int{16, 64, 1024} {
			t.Run(fmt.Sprintf("%s-%d", how, count), func(t *testing.T) {
				const threads, n = 8, 3000
				g := newTarget(t, 16<<20)
				how, spread := strings.CutPrefix(how, "spread ")
				how, g.ample = strings.CutPrefix(how, "ample ")
				if spread {
					g.stacks = []uint64{0x7ffc_1234_5678, 0x7f12_3456_7ee0}
				}
				const text = "r f v=$retval a=$arg1"
				k := g.exits(4, text, count, shallow)
				prog := g.program(text)
				var vals []fetch.Value
				var got uint64
				sums := g.run(how, threads, n, func(r *ring.Record) error {
					got++
					var err error
					if vals, err = prog.Decode(r.Data[:len(r.Data)-ReturnTail], vals); err != nil {
						return err
					}
					if a := vals[1].Int; vals[0].Int != a&^15+2*(a&15) {
						t.Errorf("%+v", vals)
					}
					return nil
				})
				var want, calls uint64
				for i := range uint64(n) {
					want += i&^15 + 2*(i&15)
					calls += i&15 + 1
				}
				for _, s := range sums[:threads] {
					if s != want {
						t.Errorf("sum %d, want %d", s, want)
					}
				}
				calls *= threads
				if how == "signal" {
					calls += 6 * sums[threads]
				}
				if c := g.counts(4); c.Hits+c.Missed != calls || c.Hits != got+c.Lost || count == 1024 && c.Missed != 0 {
					t.Errorf("%+v, %d records of %d calls", c, got, calls)
				}
				if u := g.inUse(k); u != 0 {
					t.Errorf("%d calls are left", u)
				}
			})
		}
	}
}

// Where a thread is found in the code it has the program's registers.
func TestLeaveUnwind(t *testing.T) {
	m := newMachine(t, 1, 16<<10)
	prog := must(t, "r f v=$retval a=$arg1")
	k, err := NewCalls(dataAt, prog, 4)
	if err != nil {
		t.Fatal(err)
	}
	for _, build := range []func(base uint64) (*Detour, error){
		func(base uint64) (*Detour, error) {
			return BuildEnter(base, m.params(), nil, Probe{ID: 1, Program: prog}, k, func(c *asm.Code) error { c.Ret(); return nil })
		},
		func(base uint64) (*Detour, error) {
			in := Probe{ID: 2, Program: must(t, "p f s=+0($arg1):string")}
			return BuildEnter(base, m.params(), []Probe{in}, Probe{ID: 1, Program: prog}, k, func(c *asm.Code) error { c.Ret(); return nil })
		},
		func(base uint64) (*Detour, error) {
			return BuildLeave(base, m.params(), Probe{ID: 1, Program: prog}, k, 16, func(c *asm.Code) error { c.Ret(); return nil })
		},
	} {
		d, err := build(codeAt)
		if err != nil {
			t.Fatal(err)
		}
		if int(d.Copy()-d.Base) >= len(d.Code) || d.Code[d.Copy()-d.Base] != 0xc3 {
			t.Errorf("the copy is said to be at +%#x", d.Copy()-d.Base)
		}
		inside := 0
		for off := range d.Code {
			if mk := d.mark(d.Base + uint64(off)); mk != nil && mk.depth > 0 {
				inside++
			}
		}
		if inside < len(d.Code)/2 {
			t.Errorf("%d of %d bytes are in the frame", inside, len(d.Code))
		}
	}
	for _, bad := range []Calls{{}, {Count: -1, Shift: 6}, {Count: MaxInstances + 1, Shift: 6}, {Count: 1, Shift: 5}, {Count: 1, Shift: 11}} {
		if _, err := BuildLeave(codeAt, m.params(), Probe{ID: 1, Program: prog}, bad, 0, func(*asm.Code) error { return nil }); err == nil {
			t.Errorf("%+v is taken", bad)
		}
		if _, err := BuildEnter(codeAt, m.params(), nil, Probe{ID: 1, Program: prog}, bad, func(*asm.Code) error { return nil }); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

func TestCalls(t *testing.T) {
	prog := must(t, "r f a=$arg1 b=$arg2 c=$arg3 d=$arg4 e=$arg5")
	for _, count := range []int{1, 64, 65, 4096} {
		k, err := NewCalls(0x1000, prog, count)
		if err != nil || 1<<k.Shift < callEntry+prog.EntrySize() || k.Size() != callsHead+count<<k.Shift || k.check() != nil {
			t.Fatalf("%+v, %v", k, err)
		}
		mem := append(k.Head(&Shared{}), make([]byte, k.Size()-callsHead)...)
		if u := k.Used(mem); len(u) != 0 {
			t.Errorf("fresh: %v", u)
		}
		le := binary.LittleEndian
		row := k.Count - 1
		le.PutUint64(mem[k.offset(row)+callSlot:], 0x7fff)
		le.PutUint64(mem[k.offset(row)+callReturn:], 0x4242)
		le.PutUint64(mem[k.offset(row)+callReal:], 0x4243)
		le.PutUint32(mem[k.offset(row)+callTID:], 77)
		le.PutUint32(mem[k.offset(row)+callReach:], 3)
		want := Instance{row, 77, 0x7fff, 0x4242, 0x4243}
		if u := k.Used(mem); len(u) != 1 || u[0] != want {
			t.Errorf("in use: %+v, want %+v", u, want)
		}
		if u := k.Used(mem[:k.offset(row)]); len(u) != 0 {
			t.Errorf("beyond the memory: %+v", u)
		}
		k.Free(mem, row)
		k.Free(mem, row)
		k.Free(mem, -1)
		k.Free(mem, k.Count)
		if r := le.Uint32(mem[k.offset(row)+callReach:]); r != 3 {
			t.Errorf("freed, its reach is %d", r)
		}
		if u := k.Used(mem); len(u) != 0 {
			t.Errorf("freed: %+v", u)
		}
	}
	for _, n := range []int{0, -1, MaxInstances + 1} {
		if _, err := NewCalls(0x1000, prog, n); err == nil {
			t.Errorf("%d calls", n)
		}
	}
}
