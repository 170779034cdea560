package insn

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/arch/x86/x86asm"

	"kprobe/internal/fixture"
)

func TestText(t *testing.T) {
	sym := func(a uint64) (string, uint64, bool) {
		if a >= 0x1000 && a < 0x2000 {
			return "f", a - 0x1000, true
		}
		return "", 0, false
	}
	for _, c := range [][2]string{
		{"48 89 e5", "mov rbp, rsp"},
		{"48 8b 45 f8", "mov rax, QWORD PTR [rbp-0x8]"},
		{"48 8b 85 00 f0 ff ff", "mov rax, QWORD PTR [rbp-0x1000]"},
		{"48 8b 44 c8 f8", "mov rax, QWORD PTR [rax+rcx*8-0x8]"},
		{"48 8d 05 92 fe ff ff", "lea rax, [rip-0x16e] # 0xe99"},
		{"48 8d 05 f9 ff ff ff", "lea rax, [rip-0x7] # 0x1000 <f>"},
		{"c5 f9 6f 05 10 00 00 00", "vmovdqa xmm0, XMMWORD PTR [rip+0x10] # 0x1018 <f+0x18>"},
		{"64 48 8b 04 25 28 00 00 00", "mov rax, QWORD PTR fs:[0x28]"},
		{"e8 fb 0f 00 00", "call 0x2000"},
		{"0f 84 00 00 00 00", "je 0x1006 <f+0x6>"},
		{"e3 00", "jrcxz 0x1002 <f+0x2>"},
		{"f3 0f 1e fa", "endbr64"},
		{"c5 f8 77", "vzeroupper"},
		{"c5 fc 77", "vzeroall"},
		{"3e ff e0", "notrack jmp rax"},
		{"0f 1f 44 00 00", "nop DWORD PTR [rax+rax]"},
		{"0f 01 d0", "xgetbv"},
		{"66 48 0f 38 f6 d8", ".byte 0x66, 0x48, 0x0f, 0x38, 0xf6, 0xd8 # adcx"},
		{"f3 0f c7 f8", ".byte 0xf3, 0x0f, 0xc7, 0xf8 # rdpid"},
		{"06", ".byte 0x06"},
		{"c3", "ret"},
	} {
		code := unhex(t, c[0])
		if got := Text(append(code, 0xc3, 0xc3, 0xc3, 0xc3), 0x1000, sym); got != c[1] {
			t.Errorf("%s is %q, want %q", c[0], got, c[1])
		}
	}
	if got := Text(nil, 0, nil); got != ".byte " {
		t.Errorf("nothing is %q", got)
	}
}

// knownDefect reports the instructions that x86asm reads with another length
// and without an error.
func knownDefect(i Inst, code []byte) bool {
	switch {
	case i.Flags.Has(CET), i.Flags.Has(Op16Branch):
		return true
	case i.Encoding == VEX && i.Map == 1 && i.Opcode == 0x77:
		return true
	case i.Encoding == Legacy && i.Map > 0: // takes a prefix for an instruction
		x, err := x86asm.Decode(code, 64)
		return err == nil && x.Op == 0
	}
	return false
}

// TestX86asmAgrees compares lengths with x86asm's: where both read something
// and it is none of its known defects, they are the same. If a defect is mended
// upstream, Text can do with less.
func TestX86asmAgrees(t *testing.T) {
	n, errs, defects := 0, 0, 0
	full := os.Getenv("KPROBE_TEST_FULL") != ""
	path := fixture.NeedFile(t, strings.Fields(libraries[1])...)
	objdump(t, path, ".text", func(l line) {
		n++
		if n%4 != 0 && !full {
			return
		}
		code := append(l.code, 0x90, 0x90, 0x90, 0x90)
		i, err := Decode(code)
		if err != nil {
			return
		}
		x, err := x86asm.Decode(code, 64)
		switch {
		case err != nil:
			errs++
		case x.Len != int(i.Len) && knownDefect(i, code):
			defects++
		case x.Len != int(i.Len):
			t.Errorf("% x %q: x86asm reads %d bytes, we %d", l.code, l.text, x.Len, i.Len)
		}
		if Text(code, l.at, nil) == "" {
			t.Errorf("% x has no text", l.code)
		}
	})
	t.Logf("%d instructions, %d unknown to x86asm, %d known defects", n, errs, defects)
}
