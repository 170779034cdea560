package detour

import (
	"strconv"
	"strings"
	"testing"

	"kprobe/probe/asm"
	"kprobe/probe/insn"
)

// TestLookForRoom: the look asks for all that the prologue takes from the stack,
// and for what is pushed and copied besides.
func TestLookForRoom(t *testing.T) {
	for _, text := range []string{"p f", "p f a=%di b=+0(%si):u32", "p f s=+0(%di):string", "p f n=%si a=+0(%di):u64[64] if n > 3"} {
		p := &Params{TID: TID{Seg: asm.FS, Off: 0x2d0}, NoRedZone: true, GoLook: true, MaxStack: 512}
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
	for _, text := range []string{"p f a=%r12", "p f a=%flags", "p f a=+0(%di):u8[4] b=%r12"} {
		p := &Params{TID: TID{Seg: asm.FS}, NoRedZone: true, GoLook: true, MaxStack: 512}
		if _, err := Build(codeAt, p, []Probe{{ID: 1, Program: must(t, text)}}, noTail); err == nil {
			t.Errorf("%s: what the look changes is read", text)
		}
	}
}
