package symbols

import "testing"

// TestOffsetsAreNoPlaces: the value of a symbol in a section that isn't loaded is an offset,
// though it may be the address of code.
func TestOffsetsAreNoPlaces(t *testing.T) {
	f, err := OpenFile(buildText(t, "offsets.c", `
void _start(void) { for (;;) ; }
__asm__(".text\n.globl long_one\n.type long_one,@function\nlong_one: movabsq $0x1122334455667788,%rax\nret\n.size long_one,.-long_one\n"
        "plain: nop\n"
        ".section .debug_extra,\"\",@progbits\n.skip 0x10004\nextra.c.0a1b2c3d: .byte 0\n.text\n");
`, "-nostdlib", "-static", "-no-pie", "-Wl,-Ttext=0x10000", "-Wl,--build-id=none"))
	if err != nil {
		t.Fatal(err)
	}
	if list := f.Lookup("extra.c.0a1b2c3d"); len(list) != 0 {
		t.Errorf("found by name: %+v", list)
	}
	if list := f.Glob("extra*"); len(list) != 0 {
		t.Errorf("found by a pattern: %+v", list)
	}
	if list := f.Glob("plain"); len(list) != 1 {
		t.Errorf("a label in code: %+v, want it found", list)
	}
	if fn, ok := f.FuncAt(0x10004); !ok || fn.Symbol.Name == "extra.c.0a1b2c3d" {
		t.Errorf("0x10004 is in %+v", fn.Symbol)
	}
}
