package vars

import (
	"testing"

	"kprobe/probe/insn"
)

// TestLeftByCall: behind a call a register is lost until it is set, whatever leads there.
func TestLeftByCall(t *testing.T) {
	const (
		call, ret, jmp, je, nop = 0xe8, 0xc3, 0xeb, 0x74, 0x90
		loses, keeps, never     = 0, 1, 2 // targets of calls
	)
	to := func(kind byte) []byte { return []byte{call, kind, 0, 0, 0} }
	code := func(parts ...[]byte) (out []byte) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	set := []byte{0x31, 0xf6}   // xor %esi,%esi
	other := []byte{0x31, 0xff} // xor %edi,%edi
	one := func(b ...byte) []byte { return b }
	for _, c := range []struct {
		name string
		code []byte
		at   int
		want bool
	}{
		{"before", code(to(loses), one(nop)), 0, false},
		{"behind", code(to(loses), one(nop)), 5, true},
		{"padding behind", code(to(loses), one(nop, nop)), 6, true},
		{"set", code(to(loses), set, one(nop)), 7, false},
		{"at what sets it", code(to(loses), set, one(nop)), 5, true},
		{"another is set", code(to(loses), other, one(nop)), 7, true},
		{"behind a return", code(to(loses), one(ret, nop)), 6, false},
		{"behind a jump", code(to(loses), one(jmp, 1, nop, nop)), 7, false},
		{"where a jump leads", code(to(loses), one(jmp, 1, nop, nop)), 8, true},
		{"where a branch leads", code(to(loses), one(je, 1, ret, nop)), 8, true},
		{"around the call", code(one(je, 6), to(loses), one(ret, nop)), 8, false},
		{"kept", code(to(keeps), one(nop)), 5, false},
		{"kept behind a call", code(to(loses), to(keeps), one(nop)), 10, true},
		{"never", code(to(loses), one(je, 5), to(never), one(nop)), 12, true},
		{"only never", code(to(never), one(nop)), 5, false},
		{"behind what never returns", code(to(loses), to(never), one(nop)), 10, false},
		{"back", code(one(nop), to(loses), one(jmp, 0xf8)), 0, true},
		{"in a wrong location", code(one(ret, nop), to(loses), one(je, 0, ret)), 1, true},
		{"in its first block", code(one(nop, ret), to(loses), one(je, 0, ret)), 0, false},
		{"no code", code(to(loses), one(0x06)), 5, false},
	} {
		have := leftByCall(c.code, c.at, insn.Set(insn.RSI), func(_ insn.Inst, at int) callKind { return callKind(c.code[at+1]) })
		if have != c.want {
			t.Errorf("%s: %t", c.name, have)
		}
	}
	for name, want := range map[string]callKind{
		"runtime.gcWriteBarrier3": callKeeps, "runtime.duffcopy": callKeeps, "runtime.panicBounds": callNever,
		"runtime.gopanic": callNever, "runtime.blockevent": callLoses, "main.panic": callLoses, "runtime.growslice": callLoses,
	} {
		if have := kindOfCall(name); have != want {
			t.Errorf("%s: %d", name, have)
		}
	}
}
