package detour

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

// generator makes definitions that look at the registers and memory that it
// also makes.
type generator struct {
	*rand.Rand
}

// memory fills a data segment: words that point into it, texts, and noise.
func (g *generator) memory(b []byte) {
	g.Read(b)
	for range 400 {
		at := g.Intn(len(b)/8) * 8
		binary.LittleEndian.PutUint64(b[at:], g.pointer())
	}
	for range 200 {
		at := g.Intn(len(b))
		n := min(g.Intn(40), len(b)-at)
		for i := range n {
			b[at+i] = "abcdefgh xyz/.-_"[g.Intn(16)]
		}
		if at+n < len(b) && g.Intn(4) > 0 {
			b[at+n] = 0
		}
	}
	for i := 8192; i < 8192+5000; i++ { // a text of more than MaxString
		b[i] |= 1
	}
	copy(b[len(b)-40:], "ends with the page\x00and this goes beyond")
}

// pointer is mostly into the data, sometimes near its end or wild.
func (g *generator) pointer() uint64 {
	switch g.Intn(12) {
	case 0:
		return uint64(g.Intn(1 << 17))
	case 1:
		return g.Uint64()
	case 2:
		return dataAt + dataSize - uint64(g.Intn(64))
	case 3:
		return dataAt + 8192 + uint64(g.Intn(5000))
	}
	return dataAt + uint64(g.Intn(dataSize-64))
}

// registers makes the registers of a hit on that stack.
func (g *generator) registers(r *fetch.Regs, stack uint64) {
	for i := range r.GPR {
		r.GPR[i] = g.pointer()
	}
	r.GPR[fetch.SP] = stack + stackSize - 8*uint64(g.Intn(200))
	if g.Intn(8) == 0 {
		r.GPR[fetch.SP] -= 3
	}
	r.Flags = 2 | uint64(g.Uint32())&0xcd5 // arithmetic flags and DF
}

func (g *generator) reg() string {
	return "%" + strings.Fields("ax bx cx dx si di bp sp r8 r9 r10 r11 r12 r13 r14 r15")[g.Intn(16)]
}

func (g *generator) offset() string {
	if g.Intn(20) == 0 {
		return fmt.Sprintf("%+d", g.Int63()-g.Int63())
	}
	return fmt.Sprintf("%+d", g.Intn(80)-40)
}

func (g *generator) leaf() string {
	switch g.Intn(8) {
	case 0:
		return fmt.Sprintf("$stack%d", g.Intn(12))
	case 1:
		return "$stack"
	case 2:
		return fmt.Sprintf("@%#x", g.pointer())
	}
	return g.reg()
}

func (g *generator) memoryArg() string {
	s := g.leaf()
	for range 1 + g.Intn(3) {
		s = g.offset() + "(" + s + ")"
	}
	return s
}

func (g *generator) arg() string {
	ints := strings.Fields("u8 u16 u32 u64 s8 s16 s32 s64 x8 x16 x32 x64 char symbol symstr f32 f64")
	typ := ints[g.Intn(len(ints))]
	if g.Intn(6) == 0 {
		size := 8 << g.Intn(4)
		w := 1 + g.Intn(size)
		typ = fmt.Sprintf("b%d@%d/%d", w, g.Intn(size-w+1), size)
	}
	switch g.Intn(14) {
	case 0, 1, 2:
		if g.Intn(16) == 0 {
			return []string{`\3:%pd`, `\3:%pD`, `\-1:%pd`, `\999:%pD`, g.reg() + ":%pD", g.memoryArg() + ":%pd"}[g.Intn(6)]
		}
		return g.memoryArg() + ":" + typ
	case 3:
		return g.memoryArg() + ":string"
	case 4:
		return "+0(" + g.reg() + "):string"
	case 5:
		if g.Intn(3) == 0 {
			typ = "char"
		}
		return fmt.Sprintf("%s:%s[%d]", g.memoryArg(), typ, 1+g.Intn(64))
	case 6:
		if g.Intn(2) == 0 {
			length := []string{g.leaf(), g.leaf() + ":s32", g.leaf() + ":b6@0/8", g.memoryArg() + ":s8", g.memoryArg() + ":u16", strconv.Itoa(1 + g.Intn(80)), "4096"}[g.Intn(7)]
			return fmt.Sprintf("+%d(%s):bytes[%s]", g.Intn(3), g.reg(), length)
		}
		return fmt.Sprintf("+0(%s):string[%d]", g.reg(), 1+g.Intn(6))
	case 7:
		return fmt.Sprintf("\\%d:%s", g.Int63(), typ)
	case 8:
		return []string{"$tid", "$pid", "$cpu", "%ip", "%flags", "%cs", "%ss", "%orig_ax", "$cpu:b2@1/8", "+0($pid)", "+8($cpu):string", `\"some text"`, "$comm", `\4611686018427387904:f64`}[g.Intn(14)]
	case 9:
		return fmt.Sprintf("%%xmm%d:%s", g.Intn(16), typ)
	}
	return g.leaf() + ":" + typ
}

func (g *generator) literal(v fetch.Field) string {
	if v.Type.IsText() || v.Type.Base == fetch.Char && v.Type.IsArray() {
		return []string{`== "abc"`, `!= "x/y"`, `== "some text"`, `~ "*a*"`, `~ "some*"`, `~ "[a-c]?*"`, `!= ""`, `~ "*xt"`, `~ "*"`, `~ "s*m? *[!q]e*t"`}[g.Intn(10)]
	}
	op := []string{"==", "!=", "<", "<=", ">", ">=", "&"}[g.Intn(7)]
	if v.Type.Base == fetch.Float {
		return op[:min(len(op), 2)] + " " + []string{"0", "-0.0", "1.5", "2", "-3e-20", "1e300", "-1e300", "1e-45", "1e-46", "3.4028236e38", "3.4028235e38", "-1e-44"}[g.Intn(12)]
	}
	n := g.Uint64() >> g.Intn(64)
	if v.Type.Base == fetch.Signed && g.Intn(2) == 0 {
		return op + fmt.Sprintf(" -%d", n>>1)
	}
	return op + fmt.Sprintf(" %d", n)
}

// definition makes one that parses and compiles, with a filter sometimes.
func (g *generator) definition(t testing.TB) (*fetch.Program, string) {
	for {
		text := "p f"
		for i := range 1 + g.Intn(6) {
			text += fmt.Sprintf(" a%d=%s", i, g.arg())
		}
		if g.Intn(12) == 0 {
			text += " stack=" + strconv.Itoa(1+g.Intn(8))
		}
		prog, err := compile(text)
		if err != nil {
			continue
		}
		text += g.compute(prog)
		if g.Intn(3) == 0 || strings.Contains(text, " with ") {
			return prog, text + g.limit(prog)
		}
		for range 30 {
			f := prog.Fields()[g.Intn(len(prog.Fields()))]
			filter := f.Name + " " + g.literal(f)
			if g.Intn(2) == 0 {
				h := prog.Fields()[g.Intn(len(prog.Fields()))]
				filter += []string{" && ", " || "}[g.Intn(2)] + "!(" + h.Name + " " + g.literal(h) + ")"
			}
			if g.Intn(8) == 0 {
				filter += " || " + []string{"tid != 0", "pid == 4711", "cpu == 0", "cpu & CPUS{0,2-3}", "cpu == CPUS{0}", "cpu != CPUS{0,1}",
					`comm == "detour_exec"`, `comm != "detour_exe"`, `comm ~ "det*ex?c"`}[g.Intn(9)]
			}
			if filtered, err := compile(text + " if " + filter); err == nil {
				return filtered, text + " if " + filter + g.limit(filtered)
			}
		}
	}
}

// limit has fewer bytes of some texts recorded.
func (g *generator) limit(prog *fetch.Program) (note string) {
	for i := range prog.Args {
		switch a := &prog.Args[i]; a.Store {
		case fetch.StoreString, fetch.StoreStrings, fetch.StoreCounted:
			if g.Intn(2) == 0 && a.Unit == 0 {
				a.Limit = 1 + g.Intn([]int{8, 40, 4096}[g.Intn(3)])
				note += fmt.Sprintf(" with %d bytes of a%d", a.Limit, i)
			}
		}
	}
	return note
}

// compute has some arguments calculate, as those of debug information do.
func (g *generator) compute(prog *fetch.Program) (note string) {
	for i := range prog.Args {
		a := &prog.Args[i]
		if a.Store == fetch.StoreString && g.Intn(2) == 0 {
			a.Store = fetch.StoreCounted
			a.Len = &fetch.Chain{Source: fetch.SourceImm, Imm: []uint64{0, 1, uint64(g.Intn(40)), uint64(g.Intn(5000)), ^uint64(0)}[g.Intn(5)]}
			if g.Intn(4) == 0 {
				a.Len = &fetch.Chain{Source: fetch.SourceReg, Reg: fetch.Reg(g.Intn(16))}
			}
			if g.Intn(3) == 0 {
				a.Unit, a.Max = 1+g.Intn(20), g.Intn(40)
			}
			if g.Intn(3) == 0 {
				a.Len = &fetch.Chain{Source: fetch.SourceComputed, From: fetch.SourceReg, Reg: fetch.Reg(g.Intn(16)), Steps: []fetch.Step{
					{Op: fetch.StepWhen, Imm: uint64(g.Intn(9)), Size: uint8(1 << g.Intn(4)), Imm2: []uint64{0, 1, ^uint64(0), 1 << 63}[g.Intn(4)], Not: g.Intn(2) == 0, FromReg: g.Intn(2) == 0, Reg: fetch.Reg(g.Intn(16))},
					{Op: []fetch.StepOp{fetch.StepAdd, fetch.StepBase}[g.Intn(2)], Imm: uint64(8 * g.Intn(8))}, {Op: fetch.StepDiff, Imm: uint64(8 * g.Intn(8)), Imm2: uint64(8 * g.Intn(8))}, {Op: fetch.StepAtMost, Imm: uint64(8 * g.Intn(8)), Imm2: uint64(8 * g.Intn(8)), FromReg: g.Intn(2) == 0, Reg: fetch.Reg(g.Intn(16))}, {Op: fetch.StepSar, Imm: uint64(g.Intn(64))},
				}}
			}
			note += fmt.Sprintf(" with a%d of %+v times %d, %d at most", i, *a.Len, a.Unit, a.Max)
		}
		if g.Intn(4) != 0 || a.Store != fetch.StoreValue || len(a.Loads) > 0 || a.Source != fetch.SourceImm && a.Source != fetch.SourceReg && a.Source != fetch.SourceStack && a.Source != fetch.SourcePID && a.Source != fetch.SourceTID && a.Source != fetch.SourceCPU {
			continue
		}
		a.From, a.Source = a.Source, fetch.SourceComputed
		for range 1 + g.Intn(4) {
			s := fetch.Step{Op: fetch.StepOp(g.Intn(int(fetch.StepNe) + 1)), Imm: uint64(g.Int63n(70))}
			shift := s.Op == fetch.StepShl || s.Op == fetch.StepShr || s.Op == fetch.StepSar
			switch {
			case s.Op == fetch.StepLoad:
				s.Op = fetch.StepAdd // a load needs a fault bit of its own
			case g.Intn(2) == 0:
				s.FromReg, s.Reg = true, fetch.Reg(g.Intn(16))
				if g.Intn(6) == 0 {
					s.Reg = []fetch.Reg{fetch.RegIP, fetch.RegOrigAX, fetch.RegCS, fetch.RegSS}[g.Intn(4)]
				}
			case !shift && g.Intn(2) == 0:
				s.Imm = g.Uint64()
			}
			a.Steps = append(a.Steps, s)
		}
		note += fmt.Sprintf(" with a%d computed %+v", i, a.Steps)
	}
	return note
}

func compile(text string) (*fetch.Program, error) {
	d, err := fetch.Parse(text)
	if err != nil {
		return nil, err
	}
	return d.Compile(nil)
}

// The compiled code must record what the interpreter says, and leave every
// register, flag and byte of the stack above the red zone as it was.
func TestOracle(t *testing.T) {
	rounds, seed := 6, int64(0)
	if os.Getenv("KPROBE_TEST_FULL") != "" {
		rounds, seed = 2500, time.Now().UnixNano() // a million
	}
	total := tally{}
	for round := range rounds {
		oracleRound(t, seed+int64(round+1), 400, &total)
		if t.Failed() {
			break
		}
	}
	t.Logf("%+v", total)
	if total.records*4 < total.cases || total.filtered == 0 || total.faults == 0 || total.texts == 0 {
		t.Errorf("the cases don't reach everything: %+v", total)
	}
	// All else that definitions say a detour can do.
	for why := range total.why {
		if !strings.Contains(why, "a filter compares") && !strings.Contains(why, "stack") {
			t.Errorf("%d programs were not built: %s", total.why[why], why)
		}
	}
}

type tally struct {
	cases, unsupported, records, filtered, faults, texts int
	why                                                  map[string]int // what was unsupported
}

func oracleRound(t *testing.T, seed int64, n int, total *tally) {
	g := &generator{Rand: rand.New(rand.NewSource(seed))}
	m := newMachine(t, n, n*8192)
	if seed%2 == 0 {
		m.carefully()
	}
	g.memory(m.at(dataAt))
	g.Read(m.at(stackAt))
	type todo struct {
		prog *fetch.Program
		text string
		regs fetch.Regs
		vec  fetch.Vector
		id   uint32
		dead bool // the flags
	}
	var cases []todo
	m.files = []*os.File{os.NewFile(uintptr(openNull(t)), "null")}
	p := m.params()
	p.TID = []TID{{Seg: asm.FS, Off: 0x2d0}, {}, {Seg: asm.FS, Off: 0x10, Path: []int32{0x2d0}}}[seed%3]
	p.FSGSBase = false
	for len(cases) < n {
		prog, text := g.definition(t)
		total.cases++
		c := todo{prog: prog, text: text, id: uint32(len(cases) + 1), dead: len(cases)%3 == 0}
		g.registers(&c.regs, stackAt+uint64(len(cases))*stackSize)
		c.regs.IP = 0x1234_5678_9abc
		c.regs.OrigAX = ^uint64(0)
		c.regs.CS, c.regs.SS = 0x33, 0x2b
		for i := range c.vec {
			g.Read(c.vec[i][:])
		}
		d, err := m.place(func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			p := *p
			p.FlagsDead = c.dead
			return Build(base, &p, []Probe{{ID: c.id, Program: prog, IP: c.regs.IP}}, tail)
		})
		if errors.Is(err, ErrUnsupported) {
			total.unsupported++
			if total.why == nil {
				total.why = map[string]int{}
			}
			total.why[err.Error()]++
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		m.setCase(len(cases), d.Base, &c.regs, &c.vec)
		cases = append(cases, c)
	}
	before := append([]byte(nil), m.at(stackAt)...)
	tid := m.run(n)
	after := append([]byte(nil), m.at(stackAt)...)

	var head uint64
	copy(m.at(stackAt), before) // what the program saw at the hits
	for i := range cases {
		c := &cases[i]
		m.checkAfter(i, c.dead && !c.prog.Reads(fetch.RegFlags))
		top := uint64(i+1) * stackSize
		if kept := c.regs.GPR[fetch.SP] - redZone - stackAt; !bytes.Equal(before[kept:top], after[kept:top]) {
			t.Errorf("seed %d: %s: the stack changed", seed, c.text)
		}
		unsure := false
		readLink := func(fd int) (string, error) {
			unsure = unsure || fd == 1 || fd == 2 // pipes of this run
			return readNull(fd)
		}
		ctx := fetch.Context{ReadLink: readLink, Regs: &c.regs, Mem: m, PID: p.PID, TID: tid, Comm: "detour_exec",
			Vector: func() (*fetch.Vector, error) { return &c.vec, nil }}
		// The trap would show RF, TF and IF as they are; here IF is set.
		c.regs.Flags |= 0x200
		want, pass := c.prog.Eval(&ctx, nil)
		now := binary.LittleEndian.Uint64(m.at(caseAt + uint64(i)*caseSize)[caseHead:])
		if unsure {
			head = now
			continue
		}
		hits, filtered := m.counter(c.id, ring.CounterHits), m.counter(c.id, ring.CounterFiltered)
		if lost := m.counter(c.id, ring.CounterLost); hits != 0 || filtered != b2i(!pass) || lost != 0 {
			t.Errorf("seed %d: %s: hits %d, filtered %d, lost %d; want filtered %d", seed, c.text, hits, filtered, lost, b2i(!pass))
		}
		if !pass {
			total.filtered++
			if now != head {
				t.Errorf("seed %d: %s: recorded, but the filter says no", seed, c.text)
			}
			head = now
			continue
		}
		total.records++
		if now == head {
			t.Errorf("seed %d: %s: no record", seed, c.text)
			continue
		}
		rec := m.at(ringAt + head&(testRing-1))[:now-head]
		head = now
		if !oracleRecord(t, c.prog, rec, c.id, tid, want, total) {
			t.Errorf("seed %d, case %d: %s", seed, i, c.text)
		}
	}
}

func b2i(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// oracleRecord compares a record with what the interpreter made.
func oracleRecord(t *testing.T, prog *fetch.Program, rec []byte, id uint32, tid int, want []byte, total *tally) bool {
	le := binary.LittleEndian
	gotID, units, committed := ring.SplitState(le.Uint32(rec))
	if gotID != id || !committed || units*ring.Unit != len(rec) || le.Uint32(rec[ring.TIDOff:]) != uint32(tid) || le.Uint64(rec[ring.TimeOff:]) == 0 {
		t.Errorf("header % x: id %d, %d units, committed %v; want id %d, %d bytes, thread %d", rec[:16], gotID, units, committed, id, len(rec), tid)
		return false
	}
	if ring.Units(len(want)) != units {
		t.Errorf("record of %d units, want %d", units, ring.Units(len(want)))
		return false
	}
	data := rec[ring.DataOff:]
	got, err := prog.Decode(data, nil)
	if err != nil {
		t.Errorf("decode: %v", err)
		return false
	}
	wanted, err := prog.Decode(want, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range wanted {
		if v.Fault {
			total.faults++
		}
		if len(v.Bytes) > 0 {
			total.texts++
		}
		if !reflect.DeepEqual(got[i], v) {
			t.Errorf("%s: %+v, want %+v", prog.Fields()[i].Name, got[i], v)
		}
	}
	if string(data[:len(want)]) != string(want) {
		t.Errorf("data\n% x, want\n% x", data[:len(want)], want)
		return false
	}
	return true
}
