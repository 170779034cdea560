package detour

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/insn"
	"kprobe/probe/ring"
)

// What a detour may touch
//
// Every instruction that is emitted is followed from where threads come in, with
// what its registers are known to hold on all ways there. Each that may fault must be
// one of these; the letters are those of probe/HAZARDS.md:
//
//	own     it reaches memory that kprobe has mapped itself (D16): by a constant, by
//	        what lies there, or in the frame, whose ends the prologue has touched
//	faults  the program's memory: in the exception table (Detour.Faults)
//	asks    the clock, the segment fs, a halt: in Detour.Asks (D12, D13)
//	pushes  of a prologue: in Detour.Pushes (D14)
//	call    a system call behind a read of the clock that is in Detour.Asks (D13, P9)

// Memory of kprobe's in the tests of touches; constants lie elsewhere.
const (
	ownLow  = 0x2400_0000_0000
	ownHigh = 0x2500_0000_0000
	ownCPUs = ownLow + 1<<32
	ownPool = ownLow + 2<<32
	ownFlag = ownLow + 3<<32
	ownTime = ownLow + 4<<32
	ownGate = ownLow + 5<<32
	ownHeld = ownLow + 6<<32
)

// known is what is known of a thread at an instruction.
type known struct {
	regs  uint16         // registers that lead to kprobe's memory
	frame uint16         // registers that lead to a certain word of the frame
	slots map[int64]bool // words of the frame, by their distance from SP, that do
	clock bool           // the clock has been read since the last system call
}

func (k known) has(r insn.Reg) bool { return r < 16 && k.regs>>r&1 != 0 }

func (k known) inFrame(r insn.Reg) bool { return r < 16 && k.frame>>r&1 != 0 }

// meet is what is known on both ways; changed says that it is less than k.
func (k known) meet(o known) (out known, changed bool) {
	out = known{k.regs & o.regs, k.frame & o.frame, map[int64]bool{}, k.clock && o.clock}
	for s := range k.slots {
		if o.slots[s] {
			out.slots[s] = true
		}
	}
	return out, out.regs != k.regs || out.frame != k.frame || out.clock != k.clock || len(out.slots) != len(k.slots)
}

// touching follows the code of a detour.
type touching struct {
	t              *testing.T
	name           string
	base           uint64
	code           []byte
	faults, asks   map[uint64]uint64
	pushes         map[uint64]bool
	unchecked      bool // pushes of frames on stacks that are looked at, or checked
	outside        map[uint64]bool
	at             map[uint64]known
	next           []uint64
	n, told        int
	kinds          map[string]int
	linkRegs, keep uint16
	careful        bool
}

func (w *touching) come(at uint64, k known) {
	if at < w.base || at >= w.base+uint64(len(w.code)) {
		return // the program, or shared code
	}
	was, ok := w.at[at]
	if !ok {
		k.slots = maps.Clone(k.slots)
		w.at[at], w.next = k, append(w.next, at)
		return
	}
	if both, changed := was.meet(k); changed {
		w.at[at], w.next = both, append(w.next, at)
	}
}

func (w *touching) run() {
	for len(w.next) > 0 {
		at := w.next[len(w.next)-1]
		w.next = w.next[:len(w.next)-1]
		w.step(at)
	}
	for at, k := range w.at {
		w.judge(at, k)
	}
}

func (w *touching) decode(at uint64) (insn.Inst, []byte) {
	code := w.code[at-w.base:]
	i, err := insn.Decode(code)
	if err != nil {
		w.t.Fatalf("%s: at +%#x: %v", w.name, at-w.base, err)
	}
	return i, code[:i.Len]
}

// step tells the ways that lead on from an instruction what is known there.
func (w *touching) step(at uint64) {
	i, code := w.decode(at)
	k := w.at[at]
	if to, ok := w.faults[at]; ok {
		w.come(to, k)
	}
	if to, ok := w.asks[at]; ok {
		after := k
		after.regs &^= 1<<asm.AX | 1<<asm.DX
		w.come(to, after)
	}
	if w.outside[at] {
		return
	}
	if i.Flags&insn.RelBranch != 0 {
		to, _ := i.Target(at, code)
		w.come(to, k)
		if i.Flags&(insn.CondBranch|insn.Call) == 0 {
			return
		}
		w.come(at+uint64(i.Len), k)
		return
	}
	if i.Flags&insn.IndirectJmp != 0 {
		return // its link was told where it is made
	}
	if i.Flags&(insn.Ret|insn.Halt|insn.Trap|insn.Stops) != 0 {
		return
	}
	out := w.effect(at, i, code, k)
	w.come(at+uint64(i.Len), out)
	// A link: lea r, [rip+there]; mov [rsp], r.
	if i.Flags&(insn.LEA|insn.RIPRel) == insn.LEA|insn.RIPRel && at+uint64(i.Len) < w.base+uint64(len(w.code)) {
		j, next := w.decode(at + uint64(i.Len))
		base, index, _, disp, mem := j.Mem(next)
		to, ok := i.RIPTarget(at, code)
		if ok = ok && mem && j.Opcode == 0x89 && base == insn.RSP && index == insn.NoReg; ok && disp == linkWord {
			back := out
			back.regs = back.regs&^w.linkRegs | w.keep
			w.come(to, back)
		} else if ok && disp == readLink && w.careful { // which changes no register
			w.come(to, out)
		}
	}
}

// effect is what is known behind an instruction.
func (w *touching) effect(at uint64, i insn.Inst, code []byte, k known) known {
	base, index, _, disp, mem := i.Mem(code)
	reg := insn.Reg(i.ModRM>>3&7 | i.REX&insn.REXR<<1)
	rm := insn.Reg(i.ModRM&7 | i.REX&insn.REXB<<3)
	wide := i.REX&insn.REXW != 0
	frame := mem && base == insn.RSP && index == insn.NoReg
	owned := mem && (k.has(base) || i.Flags&insn.RIPRel != 0 || frame && k.slots[disp] && i.Flags&insn.LEA == 0)
	out := k
	for r := range insn.Reg(16) {
		if i.RegsWritten().Has(r) && r != insn.RSP {
			out.regs &^= 1 << r
			out.frame &^= 1 << r
		}
	}
	give := func(r insn.Reg, yes bool) {
		if yes && r != insn.RSP {
			out.regs |= 1 << r
		}
	}
	if _, ask := w.asks[at]; ask && mem && i.Prefixes&(insn.PrefixFS|insn.PrefixGS) == 0 {
		give(base, true) // it is there: what it leads to was reached
	}
	if i.Map == 1 && i.Opcode == 0x31 { // rdtsc
		_, out.clock = w.asks[at]
	}
	if i.Flags&insn.Syscall != 0 {
		out.clock = false
	}
	if i.Flags&(insn.Push|insn.Pop) != 0 || i.Flags&insn.WritesSP != 0 {
		out.slots = nil
		return out
	}
	if i.Map != 0 {
		return out
	}
	switch op := i.Opcode; {
	case op&0xf8 == 0xb8 && i.ImmLen == 8:
		v := binary.LittleEndian.Uint64(code[i.ImmOff:])
		give(insn.Reg(op&7|i.REX&insn.REXB<<3), v >= ownLow && v < ownHigh)
	case i.Flags&insn.LEA != 0:
		give(reg, owned || k.has(index))
		if frame || mem && k.inFrame(base) && index == insn.NoReg && reg != base {
			out.frame |= 1 << reg &^ (1 << insn.RSP)
		}
	case op == 0x8b && wide && mem:
		give(reg, owned)
	case op == 0x8b && wide:
		give(reg, k.has(rm))
		out.frame |= k.frame >> rm & 1 << reg
	case op == 0x89 && wide && frame:
		out.slots = maps.Clone(k.slots)
		if out.slots == nil {
			out.slots = map[int64]bool{}
		}
		delete(out.slots, disp)
		if k.has(reg) {
			out.slots[disp] = true
		}
	case op == 0x89 && wide && !mem:
		give(rm, k.has(reg))
		out.frame |= k.frame >> reg & 1 << rm
	case (op == 0x01 || op == 0x09) && !mem:
		give(rm, wide && (k.has(rm) || k.has(reg)))
	case op == 0x03 && wide:
		give(reg, k.has(reg) || mem && owned || !mem && k.has(rm))
	case op == 0xc1 && wide && !mem:
		give(rm, k.has(rm))
	case op == 0x2b && wide:
		give(reg, k.has(reg))
	case op == 0x29 && !mem:
		give(rm, wide && k.has(rm))
	case (op == 0x81 || op == 0x83) && wide && !mem:
		give(rm, k.has(rm))
		if kind := i.ModRM >> 3 & 7; op == 0x83 && (kind == 0 || kind == 5) {
			out.frame |= k.frame & (1 << rm) // add, sub: as far as a number has digits
		}
	case op == 0x87 && wide && !mem:
		give(rm, k.has(reg))
		give(reg, k.has(rm))
	case op&0xf8 == 0x90 && wide:
		r := insn.Reg(op&7 | i.REX&insn.REXB<<3)
		give(r, k.has(insn.RAX))
		give(insn.RAX, k.has(r))
	}
	return out
}

// judge says whether an instruction may be there.
func (w *touching) judge(at uint64, k known) {
	i, code := w.decode(at)
	w.n++
	bad := func(why string) {
		if w.told++; w.told <= 8 {
			w.t.Errorf("%s: +%#x: %s: %s", w.name, at-w.base, insn.Text(code, at, nil), why)
		}
	}
	if w.outside[at] {
		return
	}
	_, fault := w.faults[at]
	_, ask := w.asks[at]
	base, index, _, _, mem := i.Mem(code)
	switch {
	case ask:
		w.kinds["asks"]++
	case fault:
		w.kinds["faults"]++
	case i.Map == 1 && i.Opcode == 0x31:
		bad("reads the clock, which the program may have forbidden")
	case i.Flags&insn.Halt != 0:
		bad("asks nobody")
	case i.Flags&insn.Syscall != 0:
		if w.kinds["call"]++; !k.clock {
			bad("strict seccomp would kill for it")
		}
	case i.Flags&insn.Trap != 0 && i.Opcode == 0xcc:
	case i.Flags&(insn.Priv|insn.Trap|insn.Undefined|insn.FarBranch|insn.XBegin|insn.X87|insn.RepString) != 0:
		bad("no detour may have it")
	case i.Prefixes&(insn.PrefixFS|insn.PrefixGS) != 0:
		bad("the segment is the program's")
	case i.Opcode == 0x9c && at-w.base >= 5 && bytes.HasPrefix(w.code[at-w.base-5:], []byte{0x48, 0x8d, 0x64, 0x24, 8}):
		// pushf over the frame's lowest word, behind lea rsp, [rsp+8]
	case i.Flags&insn.Push != 0:
		if w.kinds["pushes"]++; !w.pushes[at] && !w.unchecked {
			bad("the stack may have no room for it")
		}
	case i.Flags&(insn.Pop|insn.Ret|insn.Call) != 0 && !mem:
	case !mem || i.Flags&(insn.LEA|insn.Nop) != 0:
	case i.Flags&insn.RIPRel != 0 || base == insn.RSP || k.has(base) || k.inFrame(base) && index == insn.NoReg:
		w.kinds["own"]++
	default:
		bad("reaches memory that may be the program's")
	}
}

// touches are definitions with every way in which a detour gets at something.
var touches = []string{
	"p f", "p f a=%di b=%si", "p f a=%flags", "p f a=%di if a > 3 && a < 900", "p f a=%fs_base", "p f a=%xmm0:f64 if a > 3", "p f a=%ip b=%sp",
	"p f a=+0(%si):u32 b=+8(+16(%di)):u8", "p f a=+0(%di):u64[64]", "p f a=+0(%r13):u8[7] b=%di if b == 3", "p f a=+0(%di):b3@2/16", "p f a=@0x1234:u64",
	"p f s=+0(%si):string", "p f a=%di s=+0(%si):string t=+0(%di):string", `p f s=+0(%si):string if s ~ "a*b[cd]"`, `p f s=+0(%si):string if s == "hello there"`,
	"p f s=+0(%si):string[4]", "p f s=+0(%si):ustring", "p f $comm", `p f if comm == "a"`, "p f $tid", "p f if tid != 0", "p f t=$time", "p f t=$time if t > 3", "p f c=$cpu", "p f $pid",
	"p f a=$stack b=$stack3 c=$stack400", "p f %di:%pd", "p f %di:%pD", `p f a=%di:%pd if a ~ "/tmp/*"`, "p f s=%di:symbol", "p f a=%di stack=4", "p f stack",
	"p f a=$arg1 b=$arg8", "p f a=+0(%di):char[16] if a == \"x\"", `p f s=\"text"`,
}

var returnTouches = []string{
	"r f", "r f v=$retval", "r f v=$retval a=$arg1 b=+0($arg2):u32", "r f v=$retval s=+0($retval):string", "r f s=+0($arg1):string a=$arg2 if a > 3", "r f v=$retval s=+0($arg1):string n=$comm t=$time",
	"r f v=$retval a=$arg1 e=+0(+8($arg1)):u64 if a < 300", "r f c=$comm", "r f t=$time a=$arg1", "r f d=$duration", "r f d=$duration a=+0($arg1):u64 if $duration > 3",
}

// program is must for a definition that the language may refuse by now: then it says so.
func program(t *testing.T, text string) *fetch.Program {
	t.Helper()
	p, err := compile(text)
	if err != nil {
		t.Errorf("%s: %v", text, err)
		return must(t, "p f")
	}
	return p
}

// Every instruction of every kind of detour.
func TestHazardTouches(t *testing.T) {
	kinds := map[string]int{}
	n, refused, alone := 0, 0, false
	var more []Push // of the next one's return trampolines
	check := func(name string, d *Detour, err error, entry uint16, at ...uint64) {
		t.Helper()
		if err != nil {
			refused++
			return
		}
		w := &touching{t: t, name: name, base: d.Base, code: d.Code, faults: map[uint64]uint64{}, asks: map[uint64]uint64{}, pushes: map[uint64]bool{},
			outside: map[uint64]bool{d.Copy(): true}, at: map[uint64]known{}, kinds: kinds,
			linkRegs: 1<<asm.AX | 1<<asm.DX, keep: 1 << asm.CX, careful: alone}
		for _, f := range d.Faults() {
			w.faults[f.At] = f.To
		}
		for _, a := range d.Asks() {
			w.asks[a.At] = a.Back
		}
		for p := range d.Pushes() {
			w.pushes[p.At] = true
		}
		for _, p := range more {
			w.pushes[p.At] = true
		}
		w.unchecked = len(w.pushes) == 0
		for _, a := range append(at, d.Base) {
			w.come(a, known{regs: entry, slots: map[int64]bool{linkWord: entry != 0}})
		}
		w.run()
		n += w.n
	}
	for i, tid := range []TID{{Seg: asm.FS, Off: 0x2d0}, {Seg: asm.FS, Off: -8, Path: []int32{48, 64}}, {Seg: asm.DS}} {
		for _, how := range []string{"modern", "old", "sequences", "left alone", "left with snapshots", "left in sequences"} {
			modern, rseq := how != "old", int32(0)
			if alone = strings.HasPrefix(how, "left"); alone && i > 0 {
				continue
			}
			if strings.HasSuffix(how, "sequences") {
				if rseq = 0x9a0; tid.Seg != asm.FS || len(tid.Path) > 0 {
					continue
				}
			}
			p := &Params{PerCPU: ownCPUs, Flags: ownFlag, AreaShift: 20, CPUMask: 3, RingSize: 4 << 20, StackEnd: 0x7fff_ffff_f000, Clock: ownTime,
				TID: tid, Rseq: rseq, Rdpid: modern, FSGSBase: modern, Shared: &Shared{}}
			if alone {
				p.Careful, p.Overwrite, p.Gate, p.Control, p.Probes = true, true, ownGate, ownHeld, ownHeld
				p.Spare, p.Known = how == "left with snapshots", ownGate+4096
			}
			if alone && rseq != 0 {
				p.Births = ownGate + 8
			}
			s, err := BuildShared(codeAt+1<<40, p)
			if err != nil {
				t.Fatal(err)
			}
			p.Shared = s
			name := func(kind, text string) string { return fmt.Sprintf("%s %d %s %s", kind, i, how, text) }
			sharedTouches(check, name, s)
			if !alone {
				table, err := NewCommonCalls(ownPool, 0, 128)
				if err != nil {
					t.Fatal(err)
				}
				table.Anywhere = true
				tally, err := BuildTally(codeAt+1<<20, p, &table)
				if err != nil {
					t.Fatal(err)
				}
				check(name("tally", "pieces"), tally.by, nil, 0, tally.count, tally.arrive, tally.pass, tally.leave,
					tally.lands[0][0], tally.lands[0][1], tally.lands[1][0], tally.lands[1][1])
				for _, at := range tally.notes { // with the slot of the call, which the program's call has written
					d := &Detour{Base: at, Code: tally.Code[at-tally.Base:], Kept: Kept{stops: &stops{asks: tally.Asks}}}
					check(name("tally", "notes"), d, nil, 1<<asm.DI)
				}
				q := *p
				q.Tally = tally
				d, err := Build(codeAt, &q, []Probe{{ID: 1, Program: must(t, "p f a=%di"), CountOnly: true}, {ID: 2, Program: must(t, "p f"), CountOnly: true}}, noTail)
				check(name("tallied", "p f"), d, err, 0)
				x := Probe{ID: 1, Program: must(t, "r f"), CountOnly: true, Anywhere: true}
				d, err = BuildEnter(codeAt, &q, nil, x, table, noTail)
				check(name("tallied", "enter"), d, err, 0)
				d, err = BuildLeaves(codeAt, &q, []Probe{x}, table, 0, noTail)
				check(name("tallied", "leaves"), d, err, 0)
				d, err = BuildJump(codeAt, &q, []Probe{x}, table, asm.E, false, noTail)
				check(name("tallied", "jump"), d, err, 0)
				for n := range 4 {
					l := &Landing{Tally: tally, Return: codeAt + 5, Over: n&1 != 0, Wide: n&2 != 0}
					d, err = Build(codeAt, &q, []Probe{{ID: 1, Program: must(t, "p f"), Landing: l}}, noTail)
					check(name("tallied", "landing"), d, err, 0)
				}
				for _, way := range []Passing{PassesOn, Arrives} {
					d, err = BuildPassing(codeAt, &q, table, way, asm.E, false, noTail)
					check(name("tallied", "pass"), d, err, 0)
				}
			}
			g := &generator{rand.New(rand.NewSource(int64(i)))}
			for range 100 {
				prog, text := g.definition(t)
				d, err := Build(codeAt, p, []Probe{{ID: 1, Program: prog}}, noTail)
				check(name("random", text), d, err, 0)
			}
			for _, text := range touches {
				for _, counts := range []string{"", "hits", "bins"} {
					probe := Probe{ID: 1, Program: program(t, text), CountOnly: counts == "hits"}
					if counts == "bins" {
						if probe.Bins = binsOf(probe.Program, len(text)); probe.Bins == nil {
							continue
						}
					}
					d, err := Build(codeAt, p, []Probe{probe, {ID: 2, Program: must(t, "p f b=%di if b > 2")}}, noTail)
					check(name("build", text), d, err, 0)
					if p.Spare {
						takes, prog := probe, *probe.Program
						prog.Conditions = make([]*fetch.FilterProgram, 1) // always
						takes.Program, takes.Control = &prog, &Control{Ends: true, Triggers: []Trigger{{Action: fetch.Snapshot, Left: ownHeld + 64}}}
						d, err = Build(codeAt, p, []Probe{takes}, noTail)
						check(name("takes", text), d, err, 0)
					}
					q := *p
					q.NoRedZone, q.MaxStack, q.Look = true, 512, &Look{Free: 1<<asm.R12 | 1<<asm.R13, TLS: -8}
					d, err = Build(codeAt, &q, []Probe{probe}, noTail)
					check(name("looks", text), d, err, 0)
				}
			}
			for _, number := range []int{0, sysClone, sysVfork, sysClone3} {
				for n := range 4 {
					b := &Birth{Number: number, Args: n&1 != 0, Behind: n&2 != 0, From: fetch.Chain{Source: fetch.SourceReg, Reg: fetch.SI, Loads: []fetch.Load{{Off: 8}}}}
					if p.Births == 0 || b.Behind && (number == 0 || number == sysClone3 && !b.Args) {
						continue
					}
					d, err := Build(codeAt, p, []Probe{{ID: 1, Program: must(t, "p f"), Birth: b}}, noTail)
					check(name("birth", fmt.Sprint(number, n)), d, err, 0)
				}
			}
			for _, number := range append(Unmapping(), 0) {
				b := &Birth{Number: int(number), Unmaps: true, NoTask: true, From: fetch.Chain{Source: fetch.SourceReg, Reg: fetch.SI, Loads: []fetch.Load{{Off: 8}}}}
				d, err := Build(codeAt, p, []Probe{{ID: 1, Program: must(t, "p f"), Birth: b}}, noTail)
				check(name("unmaps", fmt.Sprint(number)), d, err, 0)
			}
			for n := range 2 * len(returnTouches) {
				text := returnTouches[n/2]
				prog := program(t, text)
				probe := Probe{ID: 1, Program: prog}
				if n%2 == 1 {
					probe.Bins = binsOf(prog, n/2)
				}
				d, err := BuildExit(codeAt, p, []Probe{probe}, nil, noTail)
				check(name("exit", text), d, err, 0)
				for _, ofGo := range []bool{false, true} {
					k, err := NewCalls(ownPool, prog, 10)
					if err != nil {
						t.Fatal(err)
					}
					k.Go = ofGo
					d, err = BuildEnter(codeAt, p, []Probe{{ID: 3, Program: must(t, "p f s=+0(%si):string")}}, probe, k, noTail)
					check(name("enter", text), d, err, 0)
					d, err = BuildLeave(codeAt, p, probe, k, 0, noTail)
					check(name("leave", text), d, err, 0)
					for _, way := range []Passing{PassesOn, Arrives} {
						for _, always := range []bool{false, true} {
							if d, err = BuildPassing(codeAt, p, k, way, asm.E, always, noTail); !ofGo {
								check(name("pass", text), d, err, 0)
							}
						}
					}
				}
				k, err := NewCommonCalls(ownPool, prog.EntrySize(), 128)
				if err != nil {
					t.Fatal(err)
				}
				d, err = BuildEnter(codeAt, p, nil, probe, k, noTail)
				check(name("enter", text), d, err, 0)
				d, err = BuildLeaves(codeAt, p, []Probe{probe, {ID: 3, Program: must(t, "r f v=$retval")}}, k, 0, noTail)
				check(name("leaves", text), d, err, 0)
				for _, way := range []Passing{PassesOn, Arrives} {
					d, err = BuildPassing(codeAt, p, k, way, asm.E, false, noTail)
					check(name("pass", text), d, err, 0)
				}
				counts := []Probe{{ID: 1, Program: must(t, "r f"), CountOnly: true, Anywhere: true}, {ID: 2, Program: must(t, "r g"), CountOnly: true, Anywhere: true}}
				for _, always := range []bool{false, true} {
					k := k
					k.Joined = always
					if d, err = BuildJump(codeAt, p, counts, k, asm.E, always, noTail); err != nil {
						t.Fatal(err)
					}
					check(name("jump", text), d, err, 0)
				}
				pool, err := NewPool(ownPool, prog, 10, maxStripes)
				if err != nil {
					t.Fatal(err)
				}
				for _, pool.Keeps = range []bool{false, true} {
					r, err := BuildReturn(codeAt, p, probe, pool, noTail)
					if err != nil {
						refused++
						continue
					}
					d = &r.Detour
					more = []Push{r.StubPush(1), r.StubPush(10)}
					check(name("return", text), d, nil, 0, r.Trampoline(1), r.Trampoline(10))
					more = nil
				}
			}
		}
	}
	t.Logf("%d instructions, %d refused, %v", n, refused, kinds)
	for _, kind := range []string{"own", "faults", "asks", "pushes", "call"} {
		if kinds[kind] < 20 {
			t.Errorf("only %d of kind %s", kinds[kind], kind)
		}
	}
	if n < 50_000 {
		t.Errorf("only %d instructions", n)
	}
}

// binsOf is how a program's first argument is counted, by one of the forms; nil: it can't be.
func binsOf(prog *fetch.Program, form int) *Bins {
	if !CanBin(prog, 0) {
		return nil
	}
	return &Bins{Form: ring.Form(form % 3), Shift: 3, Row: 1 << 19}
}

// sharedTouches has each piece of shared code followed with what its detours hand it:
// where the record is, the CPU's area, the call's row, the word of the frame or the
// slot of the call, which the program's call has written.
func sharedTouches(check func(string, *Detour, error, uint16, ...uint64), name func(kind, text string) string, s *Shared) {
	const cx, si, di, r9, r11 = 1 << asm.CX, 1 << asm.SI, 1 << asm.DI, 1 << asm.R9, 1 << asm.R11
	for _, p := range []struct {
		name string
		at   uint64
		regs uint16
	}{
		{"read", s.read, 0}, {"scan", s.scan, si}, {"name", s.name, si | di}, {"copy", s.copy, cx | si | di | r9}, {"reserve", s.reserve, si},
		{"note", s.note, si | di}, {"noteCommon", s.noteCommon, si | di}, {"noteJump", s.noteJump, si | di}, {"noteGo", s.noteGo, si}, {"find", s.find, cx | si}, {"take", s.take, di | r11}, {"takeKept", s.takeKept, di | r11},
		{"endCall", s.endCall, cx | di | si}, {"endInstance", s.endInstance, cx | di | si},
	} {
		if p.at == 0 {
			continue // nobody asks
		}
		d := &Detour{Base: p.at, Code: s.Code[p.at-s.Base:], Kept: Kept{stops: &stops{faults: s.Faults, asks: s.Asks}}}
		check(name("shared", p.name), d, nil, p.regs)
	}
}
