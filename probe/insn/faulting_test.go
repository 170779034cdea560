package insn

import (
	"fmt"
	"strings"
	"testing"
)

// TestFaulting: which instructions of a copy may have a fault of the program's,
// and what is to be undone there, with the operand in reach of the copy and
// beyond it.
func TestFaulting(t *testing.T) {
	const from, near, far = 0x40_0000, 0x50_0000, 0x7f00_0000_0000
	for _, c := range []struct {
		code      string
		near, far string // "KIND+off:addsp[:register@at]" of each
	}{
		{"48 8b 07", "m:0", "m:0"},                                     // mov rax, [rdi]
		{"48 8b 05 00 10 00 00", "m:0", "m:136:6@0"},                   // mov rax, [rip+4096]
		{"ff 35 00 10 00 00", "m:0", "m:136:3@0"},                      // push [rip+4096]
		{"8f 05 00 10 00 00", "m:0", "m:144:3@8"},                      // pop [rip+4096]
		{"ff 10", "m:8", "m:8"},                                        // call [rax]
		{"ff 15 00 10 00 00", "m:8", "m:136:3@0"},                      // call [rip+4096]
		{"ff 20", "m:0", "m:0"},                                        // jmp [rax]
		{"a4", "m:0", "m:0"},                                           // movsb
		{"f3 48 ab", "m:0", "m:0"},                                     // rep stosq
		{"48 a1 00 10 00 00 00 00 00 00", "m:0", "m:0"},                // mov rax, [0x1000]
		{"48 8b 04 25 00 10 00 00", "m:0", "m:0"},                      // the same, sign-extended
		{"48 8b 44 04 08", "m:0", "m:0"},                               // mov rax, [rsp+rax+8]
		{"48 f7 f9", "d:0", "d:0"},                                     // idiv rcx
		{"f7 37", "m:0 d:0", "m:0 d:0"},                                // div [rdi]
		{"48 f7 27", "m:0", "m:0"},                                     // mul [rdi]
		{"c5 fc 10 07", "m:0", "m:0"},                                  // vmovups ymm0, [rdi]
		{"48 8b 44 24 08", "", ""},                                     // mov rax, [rsp+8]
		{"64 48 8b 04 25 28 00 00 00", "", ""},                         // mov rax, fs:[0x28]
		{"50", "", ""}, {"5d", "", ""}, {"c3", "", ""}, {"c9", "", ""}, // push, pop, ret, leave
		{"e8 00 10 00 00", "", ""}, {"e9 00 10 00 00", "", ""}, // call, jmp
		{"48 8d 07", "", ""}, {"0f 1f 40 00", "", ""}, {"48 89 f8", "", ""}, // lea, nop, mov
	} {
		for to, want := range map[uint64]string{near: c.near, far: c.far} {
			m, err := Relocate(unhex(t, c.code), from, to, Options{})
			if err != nil {
				t.Errorf("%s: %v", c.code, err)
				continue
			}
			memory, division := m.Faulting(to)
			got := append(describe("m", memory), describe("d", division)...)
			if s := strings.Join(got, " "); s != want {
				t.Errorf("%s at %#x: %q, want %q", c.code, to, s, want)
			}
			for _, p := range append(memory, division...) {
				if p.IP != from {
					t.Errorf("%s: a fault would be seen at %#x", c.code, p.IP)
				}
			}
		}
	}
}

func describe(kind string, points []Point) (out []string) {
	for _, p := range points {
		s := fmt.Sprintf("%s:%d", kind, p.AddSP)
		if p.Scratch != NoReg {
			s += fmt.Sprintf(":%d@%d", p.Scratch, p.ScratchAt)
		}
		out = append(out, s)
	}
	return out
}
