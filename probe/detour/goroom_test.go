package detour

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/insn"
)

// TestLookForRoom: the look asks for all that the prologue takes from the stack,
// and for what is pushed and copied besides.
func TestLookForRoom(t *testing.T) {
	for _, text := range []string{"p f", "p f a=%di b=+0(%si):u32", "p f s=+0(%di):string", "p f n=%si a=+0(%di):u64[64] if n > 3"} {
		p := &Params{TID: TID{Seg: asm.FS, Off: 0x2d0}, NoRedZone: true, Look: &Look{Free: 1 << asm.R12, Flags: true}, MaxStack: 512, Shared: anyShared(t)}
		d, err := Build(codeAt, p, []Probe{{ID: 1, Program: must(t, text)}}, noTail)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		number := func(s, before, behind string) int {
			s, ok := strings.CutPrefix(s, before)
			s, ok2 := strings.CutSuffix(s, behind)
			n, err := strconv.ParseUint(s, 0, 32)
			if !ok || !ok2 || err != nil {
				return 0
			}
			return int(n)
		}
		need, depth, pushed := 0, 0, false
		for code := d.Code; ; {
			in, err := insn.Decode(code)
			if err != nil {
				t.Fatalf("%s: % x: %v", text, code[:min(16, len(code))], err)
			}
			s := insn.Text(code[:in.Len], 0, nil)
			code = code[in.Len:]
			if n := number(s, "lea r12, [rsp-", "]"); n > 0 {
				need = n
			}
			if n := number(s, "lea rsp, [rsp-", "]"); n > 0 {
				depth += n
			}
			if strings.HasPrefix(s, "push") {
				depth += 8
				pushed = true
			}
			if pushed && !strings.HasPrefix(s, "push") && !strings.HasPrefix(s, "lahf") && !strings.HasPrefix(s, "seto") && !strings.HasPrefix(s, "lea rsp") {
				break
			}
		}
		if depth < 40 || need != depth+lookMore {
			t.Errorf("%s: the prologue takes %d bytes, room for %d is looked for", text, depth, need)
		}
		if d.NoRoom() == 0 || d.Code[d.NoRoom()-d.Base] != 0xcc || len(d.Faults()) < 2 {
			t.Errorf("%s: no room leads to %#x, %d loads may fault", text, d.NoRoom(), len(d.Faults()))
		}
	}
	for text, refused := range map[string][2]bool{ // by whether the flags are kept
		"p f a=%r12": {true, true}, "p f a=%flags": {true, false}, "p f a=%r13": {false, true}, "p f a=+0(%di):u8[4] b=%r12": {true, true},
		"p f a=%r11": {false, false},
	} {
		for i, free := range []uint16{1 << asm.R12, 1<<asm.R12 | 1<<asm.R13} {
			p := &Params{TID: TID{Seg: asm.FS}, NoRedZone: true, Look: &Look{Free: free, Flags: i == 0}, MaxStack: 512}
			if _, err := Build(codeAt, p, []Probe{{ID: 1, Program: must(t, text)}}, noTail); (err != nil) != refused[i] {
				t.Errorf("%s, flags kept %v: %v", text, i == 1, err)
			}
		}
	}
}

// TestLookFromTLS: where the goroutine is in the thread's own memory, one register
// does for it and for what is compared, and what doesn't fit leads to the trap.
func TestLookFromTLS(t *testing.T) {
	p := &Params{TID: TID{Seg: asm.FS, Off: 0x2d0}, NoRedZone: true, Look: &Look{Free: 1 << asm.R10, Flags: true, TLS: -8}, MaxStack: 512}
	d, err := Build(codeAt, p, []Probe{{ID: 1, Program: must(t, "p f a=%di")}}, noTail)
	if err != nil {
		t.Fatal(err)
	}
	trap := strconv.FormatUint(d.NoRoom(), 16)
	var got []string
	for at := 0; len(got) < 10; {
		in, err := insn.Decode(d.Code[at:])
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, insn.Text(d.Code[at:at+int(in.Len)], d.Base+uint64(at), nil))
		at += int(in.Len)
	}
	need := 8*5 + lookMore
	want := []string{
		"mov r10, QWORD PTR fs:[-0x8]", "test r10, r10", "je 0x" + trap,
		"mov r10, QWORD PTR [r10]", "lea r10, [r10+0x" + strconv.FormatInt(int64(need), 16) + "]", "cmp rsp, r10", "jbe 0x" + trap,
		"mov r10, QWORD PTR fs:[-0x8]", "cmp rsp, QWORD PTR [r10+0x8]", "jae 0x" + trap,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if len(d.Faults()) < 4 {
		t.Errorf("%d loads may fault", len(d.Faults()))
	}
	for _, f := range d.Faults()[:4] {
		if f.To != d.NoRoom() {
			t.Errorf("a fault at %#x leads to %#x", f.At, f.To)
		}
	}
}

// TestLookKeepsFlags: where the flags are kept in a register, they and all registers
// but the two that are free can be told at each instruction, and are what they were
// behind; wherever the goroutine is found.
func TestLookKeepsFlags(t *testing.T) {
	for n, flags := range []uint64{0x102, 0x8d7 | 0x100, 0x803, 0x142, 0x957} {
		with, keep := [...]asm.Reg{asm.R12, asm.R10, asm.R9, asm.BX, asm.DX}[n], [...]asm.Reg{asm.R13, asm.R8, asm.BX, asm.SI, asm.CX}[n]
		m := newMachine(t, 1, 4096, shared{logAt, 0, 4 << 20, protRW})
		p := *m.params()
		p.NoRedZone, p.Look, p.MaxStack = true, &Look{Free: 1<<with | 1<<keep}, 512
		d, err := m.place(func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return Build(base, &p, []Probe{{ID: 1, Program: must(t, "p f a=%di fl=%flags")}}, tail)
		})
		if err != nil {
			t.Fatal(err)
		}
		regs := fetch.Regs{Flags: flags | 0x100}
		for i := range regs.GPR {
			regs.GPR[i] = uint64(i+1) * 0x1234_5678_9abc
		}
		regs.GPR[fetch.SP] = stackAt + stackSize - 4096
		regs.GPR[fetch.R14] = dataAt
		m.put64(dataAt+gStackLo, stackAt)
		m.put64(dataAt+gStackHi, stackAt+stackSize)
		m.setCase(0, d.Base, &regs, &fetch.Vector{})
		in := 0
		for _, st := range m.step(d) {
			now := st.regs
			ok, err := d.Unwind(&now, st.mem)
			if err != nil {
				t.Errorf("at +%#x: %v", now.IP-d.Base, err)
			}
			if ok {
				in++
			}
			now.GPR[with], now.GPR[keep] = regs.GPR[with], regs.GPR[keep]
			if now.GPR != regs.GPR || (now.Flags^regs.Flags)&0xcd5 != 0 {
				t.Errorf("at +%#x (in frame %v): registers %x, flags %#x; want %x, %#x", st.regs.IP-d.Base, ok, now.GPR, now.Flags, regs.GPR, regs.Flags)
			}
		}
		if in < 20 {
			t.Errorf("%d instructions in the frame", in)
		}
		// Where there is no room the trap stands behind the flags' way back.
		kept := insn.Reg(keep).String()
		want := "xchg rax, " + kept + ";add al, 0x7f;sahf;mov rax, " + kept + ";"
		var at []int // where the last instructions before it start
		for off := 0; off < int(d.NoRoom()-d.Base); {
			i, err := insn.Decode(d.Code[off:])
			if err != nil {
				break // data
			}
			at = append(at, off)
			off += int(i.Len)
		}
		got := ""
		for _, off := range at[max(0, len(at)-4):] {
			i, _ := insn.Decode(d.Code[off:])
			got += insn.Text(d.Code[off:off+int(i.Len)], 0, nil) + ";"
		}
		if got != want {
			t.Errorf("before the trap: %s", got)
		}
	}
}
