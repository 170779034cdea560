package insn

import "testing"

func TestStackStrays(t *testing.T) {
	for _, tt := range []struct {
		name string
		code []byte
		at   []uint64 // where it strays
	}{
		{"set and set back", []byte{0x48, 0x89, 0xe2, 0x48, 0x89, 0xfc, 0x90, 0x48, 0x89, 0xd4, 0xc3}, []uint64{6, 7}},              // mov rdx, rsp; mov rsp, rdi; nop; mov rsp, rdx; ret
		{"by the frame pointer", []byte{0x48, 0x89, 0xe5, 0x48, 0x8b, 0x27, 0x58, 0x90, 0x48, 0x89, 0xec, 0xc3}, []uint64{6, 7, 8}}, // mov rbp, rsp; mov rsp, [rdi]; pop rax; nop; mov rsp, rbp; ret
		{"a stack that is called on", []byte{0x48, 0x89, 0xe3, 0x48, 0x89, 0xfc, 0xff, 0xd6, 0x48, 0x89, 0xdc, 0xc3}, nil},          // mov rbx, rsp; mov rsp, rdi; call rsi; mov rsp, rbx; ret
		{"a switch", []byte{0x48, 0x89, 0x27, 0x48, 0x8b, 0x26, 0x5d, 0x5b, 0xc3}, nil},                                             // mov [rdi], rsp; mov rsp, [rsi]; pop rbp; pop rbx; ret
		{"a frame", []byte{0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xe4, 0xc0, 0x48, 0x81, 0xec, 0, 1, 0, 0, 0x90, 0xc9, 0xc3}, nil},    // push rbp; mov rbp, rsp; and rsp, -64; sub rsp, 256; nop; leave; ret
		{"realigned", []byte{0x4c, 0x8d, 0x54, 0x24, 8, 0x48, 0x83, 0xe4, 0xe0, 0x90, 0x49, 0x8d, 0x62, 0xf8, 0xc3}, nil},           // lea r10, [rsp+8]; and rsp, -32; nop; lea rsp, [r10-8]; ret
		{"swapped", []byte{0x48, 0x94, 0x90, 0x48, 0x94, 0xc3}, []uint64{2, 3}},                                                     // xchg rsp, rax; nop; xchg rsp, rax; ret
	} {
		f, err := Sweep(tt.code, 0, SweepOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := map[uint64]bool{}
		for _, a := range tt.at {
			want[a] = true
		}
		for at := range f.All() {
			if f.StackStrays(at) != want[at] {
				t.Errorf("%s: at %d it strays: %v", tt.name, at, !want[at])
			}
		}
	}
}
