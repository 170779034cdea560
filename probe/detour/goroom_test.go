package detour

import (
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
		p := &Params{TID: TID{Seg: asm.FS, Off: 0x2d0}, NoRedZone: true, GoLook: true, MaxStack: 512, Shared: anyShared(t)}
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
			if pushed && !strings.HasPrefix(s, "push") && !strings.HasPrefix(s, "lahf") && !strings.HasPrefix(s, "seto") {
				break
			}
		}
		if depth < 40 || need != depth+lookMore {
			t.Errorf("%s: the prologue takes %d bytes, room for %d is looked for", text, depth, need)
		}
		if d.NoRoom == 0 || d.Code[d.NoRoom-d.Base] != 0xcc || len(d.Faults) < 2 {
			t.Errorf("%s: no room leads to %#x, %d loads may fault", text, d.NoRoom, len(d.Faults))
		}
	}
	for text, refused := range map[string][2]bool{ // by whether the flags are kept
		"p f a=%r12": {true, true}, "p f a=%flags": {true, false}, "p f a=%r13": {false, true}, "p f a=+0(%di):u8[4] b=%r12": {true, true},
	} {
		for i, keep := range []bool{false, true} {
			p := &Params{TID: TID{Seg: asm.FS}, NoRedZone: true, GoLook: true, GoKeep: keep, MaxStack: 512}
			if _, err := Build(codeAt, p, []Probe{{ID: 1, Program: must(t, text)}}, noTail); (err != nil) != refused[i] {
				t.Errorf("%s, flags kept %v: %v", text, keep, err)
			}
		}
	}
}

// TestLookKeepsFlags: where the flags are kept in r13, they and all registers but
// r12 and r13 can be told at each instruction, and are what they were behind.
func TestLookKeepsFlags(t *testing.T) {
	for _, flags := range []uint64{0x102, 0x8d7 | 0x100, 0x803, 0x142} {
		m := newMachine(t, 1, 4096, shared{logAt, 0, 4 << 20, protRW})
		p := *m.params()
		p.NoRedZone, p.GoLook, p.GoKeep, p.MaxStack = true, true, true, 512
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
			now.GPR[fetch.R12], now.GPR[fetch.R13] = regs.GPR[fetch.R12], regs.GPR[fetch.R13]
			if now.GPR != regs.GPR || (now.Flags^regs.Flags)&0xcd5 != 0 {
				t.Errorf("at +%#x (in frame %v): registers %x, flags %#x; want %x, %#x", st.regs.IP-d.Base, ok, now.GPR, now.Flags, regs.GPR, regs.Flags)
			}
		}
		if in < 20 {
			t.Errorf("%d instructions in the frame", in)
		}
		// Where there is no room the trap stands behind the flags' way back.
		want := "xchg rax, r13;add al, 0x7f;sahf;mov rax, r13;"
		var at []int // where the last instructions before it start
		for off := 0; off < int(d.NoRoom-d.Base); {
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
