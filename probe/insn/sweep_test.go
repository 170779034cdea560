package insn

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// image is memory for jump tables.
func image(at uint64, b []byte) func([]byte, uint64) error {
	return func(p []byte, from uint64) error {
		if from < at || from-at+uint64(len(p)) > uint64(len(b)) {
			return fmt.Errorf("nothing at %#x", from)
		}
		copy(p, b[from-at:])
		return nil
	}
}

func TestSweepBoundaries(t *testing.T) {
	// push rbp; mov rbp,rsp; call +0; ret
	f, err := Sweep(unhex(t, "55 4889e5 e800000000 c3"), 0x1000, SweepOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []uint64
	for at := range f.All() {
		got = append(got, at)
	}
	if want := []uint64{0x1000, 0x1001, 0x1004, 0x1009}; !slices.Equal(got, want) {
		t.Errorf("instructions at %#x, want %#x", got, want)
	}
	for _, c := range []struct{ at, before, after uint64 }{
		{0x1000, 0x1000, 0x1001}, {0x1001, 0x1000, 0x1004}, {0x1002, 0x1001, 0x1004},
		{0x1008, 0x1004, 0x1009}, {0x1009, 0x1004, 0x100a}, {0x2000, 0x1009, 0x100a}, {0x10, 0x1000, 0x1000},
	} {
		if b, a := f.Around(c.at); b != c.before || a != c.after {
			t.Errorf("around %#x are %#x and %#x, want %#x and %#x", c.at, b, a, c.before, c.after)
		}
	}
	if i, code, ok := f.At(0x1004); !ok || !i.Flags.Has(Call) || code[0] != 0xe8 {
		t.Errorf("at 0x1004 is %+v % x %v", i, code, ok)
	}
	if _, _, ok := f.At(0x1002); ok {
		t.Error("an instruction at 0x1002")
	}
	if _, err := Sweep(nil, 0x1000, SweepOptions{}); !errors.Is(err, ErrTruncated) {
		t.Errorf("no code: %v", err)
	}
}

// TestSweeper: a function that a Sweeper makes is the one that Sweep makes, whatever was looked at
// before; and what Sweep made stays as it was.
func TestSweeper(t *testing.T) {
	var kept []*Function
	var sweeper Sweeper
	codes := []string{"90 90 eb fc e8 00 00 00 00 c3", "c3", "06 eb 01 06 c3 74 fe", "ff e0"}
	for range 2 {
		for _, text := range codes {
			code := unhex(t, text)
			f, err := Sweep(code, 0x1000, SweepOptions{})
			if err != nil {
				t.Fatal(err)
			}
			kept = append(kept, f)
			if b, err := sweeper.Sweep(code, 0x1000, SweepOptions{}); err != nil || !same(b, f) {
				t.Errorf("%s: of a Sweeper %+v, %v, else %+v", text, b, err, f)
			}
		}
	}
	for i, f := range kept[:len(codes)] {
		if !same(f, kept[len(codes)+i]) {
			t.Errorf("%s has become %+v", codes[i], f)
		}
	}
	if f, err := sweeper.Sweep(nil, 0x1000, SweepOptions{}); f != nil || !errors.Is(err, ErrTruncated) {
		t.Errorf("no code: %+v, %v", f, err)
	}
}

func same(a, b *Function) bool {
	return slices.Equal(a.starts, b.starts) && slices.Equal(a.flags, b.flags) && slices.Equal(a.sizes, b.sizes) &&
		slices.Equal(a.targets, b.targets) && slices.Equal(a.desyncs, b.desyncs) && slices.Equal(a.Exits(), b.Exits())
}

func TestSweepDesync(t *testing.T) {
	for _, c := range []struct {
		name, code string
		anchors    []uint64
		starts     []uint64
		desync     []Desync
	}{
		{"data skipped by a jump", "eb 02 06 07 90 c3", nil, []uint64{0x1000, 0x1004, 0x1005},
			[]Desync{{At: 0x1002, Anchor: 0x1004, Err: ErrUndefined}}},
		{"data with nothing behind", "c3 06 90", nil, []uint64{0x1000}, []Desync{{At: 0x1001, Err: ErrUndefined}}},
		{"data with an anchor", "c3 06 90", []uint64{0x1002, 0x5000}, []uint64{0x1000, 0x1002},
			[]Desync{{At: 0x1001, Anchor: 0x1002, Err: ErrUndefined}}},
		{"anchor inside an instruction", "b8 90 90 90 90 c3", []uint64{0x1003}, []uint64{0x1003, 0x1004, 0x1005},
			[]Desync{{At: 0x1000, Anchor: 0x1003}}},
		{"cut off", "90 e8 00", nil, []uint64{0x1000}, []Desync{{At: 0x1001, Err: ErrTruncated}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := Sweep(unhex(t, c.code), 0x1000, SweepOptions{Anchors: c.anchors})
			if err != nil {
				t.Fatal(err)
			}
			var got []uint64
			for at := range f.All() {
				got = append(got, at)
			}
			if !slices.Equal(got, c.starts) {
				t.Errorf("instructions at %#x, want %#x", got, c.starts)
			}
			if !slices.Equal(f.Desyncs(), c.desync) {
				t.Errorf("desyncs %v, want %v", f.Desyncs(), c.desync)
			}
		})
	}
}

func TestOverlaps(t *testing.T) {
	// je over the lock prefix of lock incl (rax)
	f, err := Sweep(unhex(t, "74 01 f0 ff 00 c3"), 0x1000, SweepOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := []Target{{From: 0x1000, To: 0x1003, Inside: true}}
	if !slices.Equal(f.Overlaps(), want) {
		t.Errorf("%v, want %v", f.Overlaps(), want)
	}
}

func TestExits(t *testing.T) {
	for _, c := range []struct {
		name, code string
		opts       SweepOptions
		want       []Exit
	}{
		{"ret and ret n", "c3 c2 10 00", SweepOptions{}, []Exit{{Addr: 0x1000, Sure: true}, {Addr: 0x1001, Pop: 16, Sure: true}}},
		{"tail jump", "e9 fb 0f 00 00", SweepOptions{}, []Exit{{Kind: ExitTail, Addr: 0x1000, To: 0x2000, Sure: true}}},
		{"jump inside and to its start", "eb fe eb 00 c3", SweepOptions{}, []Exit{{Addr: 0x1004, Sure: true}}},
		{"conditional tail jump", "0f 84 fa 0f 00 00 c3", SweepOptions{},
			[]Exit{{Kind: ExitCondTail, Addr: 0x1000, To: 0x2000, Sure: true}, {Addr: 0x1006, Sure: true}}},
		{"to the cold part", "0f 84 fa 0f 00 00 c3", SweepOptions{Inside: func(a uint64) bool { return a == 0x2000 }},
			[]Exit{{Addr: 0x1006, Sure: true}}},
		{"pointer of the GOT", "ff 25 00 10 00 00", SweepOptions{}, []Exit{{Kind: ExitTail, Addr: 0x1000, Indirect: true, Sure: true}}},
		{"register behind pop", "5d ff e0", SweepOptions{}, []Exit{{Kind: ExitTail, Addr: 0x1001, Indirect: true, Sure: true}}},
		{"register, nothing known", "90 ff e0", SweepOptions{}, []Exit{{Kind: ExitTail, Addr: 0x1001, Indirect: true}}},
		{"a table of which nothing is known", "ff 24 c5 00 10 40 00 c3", SweepOptions{}, []Exit{{Kind: ExitTail, Addr: 0x1000, Indirect: true}, {Addr: 0x1007, Sure: true}}},
		{"table of functions", "488d15f90f0000 ff24c2", functionsAt(0x2000), []Exit{{Kind: ExitTail, Addr: 0x1007, Indirect: true}}},
		{"computed goto", "488d15f90f0000 ff24c2", functionsAt(0x1007), nil},
		{"switch with cold parts", "488d15f90f0000 ff24c2", withParts(functionsAt(0x3001, 0x3011, 0x1007)), nil},
		{"labels behind functions", "488d15f90f0000 ff24c2", withParts(functionsAt(0x3000, 0x1007)), []Exit{{Kind: ExitTail, Addr: 0x1007, Indirect: true}}},
		{"its own entry in the table", "488d15f90f0000 ff24c2", functionsAt(0x1000, 0x3000), []Exit{{Kind: ExitTail, Addr: 0x1007, Indirect: true}}},
		{"nothing in the table yet", "488d15f90f0000 ff24c2", functionsAt(), []Exit{{Kind: ExitTail, Addr: 0x1007, Indirect: true}}},
		{"labels behind a displacement", "488d15f10f0000 ff64c208", functionsAt(0x1007), nil},
		{"structures with functions", "488d15f90f0000 48c1e004 ff640208", functionsAt(0, 0x3000), []Exit{{Kind: ExitTail, Addr: 0x100b, Indirect: true}}},
		{"loaded labels", "488d15f90f0000 488b04c2 ffe0", functionsAt(0x100b), nil},
		{"loaded functions", "488d15f90f0000 488b04c2 ffe0", functionsAt(0x3000), []Exit{{Kind: ExitTail, Addr: 0x100b, Indirect: true}}},
		{"labels, set far away", "488d15f90f0000 eb00 e800000000 ff24c2", functionsAt(0x100e), nil},
		{"labels or functions, set far away", "488d15f90f0000 488d1502100000 eb00 ff24c2", functionsAt(0x1000, 0x1010, 0x3000, 0x3000),
			[]Exit{{Kind: ExitTail, Addr: 0x1010, Indirect: true}}},
		{"set far away, and changed", "488d15f90f0000 eb00 ffc2 eb00 ff24c2", functionsAt(0x1000, 0x100d), []Exit{{Kind: ExitTail, Addr: 0x100d, Indirect: true}}},
		{"first entry empty", "488d15f90f0000 ff24c2", functionsAt(0, 0x3000), []Exit{{Kind: ExitTail, Addr: 0x1007, Indirect: true}}},
		{"fixed table of functions", "ff24c500200000", functionsAt(0x2000), []Exit{{Kind: ExitTail, Addr: 0x1000, Indirect: true}}},
		{"loaded from a fixed table of functions", "488b04c500200000 ffe0", functionsAt(0x2000), []Exit{{Kind: ExitTail, Addr: 0x1008, Indirect: true}}},
		{"table in a structure", "488b4708 ff24d0", SweepOptions{}, []Exit{{Kind: ExitTail, Addr: 0x1004, Indirect: true}}},
		{"table behind an epilogue", "90 5b ff24d0", SweepOptions{}, []Exit{{Kind: ExitTail, Addr: 0x1002, Indirect: true}}},
		{"table behind an epilogue, described", "5b ff24d0", withSlots(Slot{Base: RSP, Off: 16}, Slot{Base: RSP, Off: 8}), []Exit{{Kind: ExitTail, Addr: 0x1001, Indirect: true, Sure: true}}},
		{"table on the stack", "488b442408 ff24d0", SweepOptions{}, []Exit{{Kind: ExitTail, Addr: 0x1005, Indirect: true}}},
		{"table on the stack, with a frame", "488b442408 ff24d0", withSlots(Slot{Base: RSP, Off: 24}), nil},
		{"without a frame", "488b442408 ff24d0", withSlots(Slot{Base: RSP, Off: 8}), []Exit{{Kind: ExitTail, Addr: 0x1005, Indirect: true}}},
		{"a frame by another register", "488b442408 ff24d0", withSlots(Slot{Base: R10}), []Exit{{Kind: ExitTail, Addr: 0x1005, Indirect: true}}},
		{"a frame that others have in common", "488b442408 ff24d0", SweepOptions{Slot: func(uint64) (Slot, bool) { return Slot{RSP, 24, 0x1000, 0x2000}, true }},
			[]Exit{{Kind: ExitTail, Addr: 0x1005, Indirect: true}}},
		{"a register, with a frame", "90 ffe0", withSlots(Slot{Base: RBP, Off: 16}), nil},
		{"behind a prologue", "50 4883ec48 90 ff20", withSlots(Slot{Base: RSP, Off: 88}), nil},
		{"behind an epilogue that isn't described", "4883c418 5b ff20", withSlots(Slot{Base: RSP, Off: 40}), []Exit{{Kind: ExitTail, Addr: 0x1005, Indirect: true, Sure: true}}},
		{"behind the pop of the frame pointer", "5d 90 ff20", withSlots(Slot{Base: RBP, Off: 16}), []Exit{{Kind: ExitTail, Addr: 0x1002, Indirect: true, Sure: true}}},
		{"behind leave", "c9 ff20", withSlots(Slot{Base: RBP, Off: 16}), []Exit{{Kind: ExitTail, Addr: 0x1001, Indirect: true, Sure: true}}},
		{"behind a call's arguments", "4883c410 410fb645 00 41ff24c4", withSlots(Slot{Base: RSP, Off: 48}, Slot{Base: RSP, Off: 32}), nil},
		{"behind a call's arguments, with a frame pointer", "4883c410 410fb645 00 41ff24c4", withSlots(Slot{Base: RBP, Off: 16}), nil},
		{"another stack", "4889c4 ffe2", withSlots(Slot{Base: RSP, Off: 32}), []Exit{{Kind: ExitTail, Addr: 0x1003, Indirect: true, Sure: true}}},
		{"table of functions behind a prologue", "4883ec48 ff24fd00200000", withParts(functionsAt(0x3000)), []Exit{{Kind: ExitTail, Addr: 0x1004, Indirect: true}}},
		{"table of functions, itself first", "4883ec48 ff24fd00200000", functionsAt(0x1000, 0x3000), []Exit{{Kind: ExitTail, Addr: 0x1004, Indirect: true}}},
		{"exception delivered", "4889e5 4889cc 59 ffe1", SweepOptions{}, []Exit{{Kind: ExitOuter, Addr: 0x1007, Indirect: true, Sure: true}}},
		{"exception delivered, no frame pointer", "488d643410 59 ffe1", SweepOptions{}, []Exit{{Kind: ExitOuter, Addr: 0x1006, Indirect: true, Sure: true}}},
		{"context set", "488b6738 5f 59 ffe1", SweepOptions{}, []Exit{{Kind: ExitOuter, Addr: 0x1006, Indirect: true, Sure: true}}},
		{"exception delivered by a return", "4889cc c3", SweepOptions{}, []Exit{{Addr: 0x1003, Outer: true, Sure: true}}},
		{"exception delivered by a return, no frame pointer", "488d643410 c3", SweepOptions{}, []Exit{{Addr: 0x1005, Outer: true, Sure: true}}},
		{"context set by a return", "488ba7a0000000 51 488b4f68 c3", SweepOptions{}, []Exit{{Addr: 0x100c, Outer: true, Sure: true}}},
		{"a register pushed", "50 c3", SweepOptions{}, []Exit{{Kind: ExitPushed, Addr: 0x1001, Indirect: true, Sure: true}}},
		{"a number pushed", "6800104000 c3", SweepOptions{}, []Exit{{Kind: ExitPushed, Addr: 0x1005, Indirect: true, Sure: true}}},
		{"pushed under another", "50 51 59 c3", SweepOptions{}, []Exit{{Kind: ExitPushed, Addr: 0x1003, Indirect: true, Sure: true}}},
		{"stored where the stack pointer is", "4c891c24 c3", SweepOptions{}, []Exit{{Kind: ExitPushed, Addr: 0x1004, Indirect: true, Sure: true}}},
		{"stored, more on the stack", "48894c2408 58 c3", SweepOptions{}, []Exit{{Kind: ExitPushed, Addr: 0x1006, Indirect: true, Sure: true}}},
		{"stored below the stack pointer", "488944 24f8 4883ec08 c3", SweepOptions{}, []Exit{{Kind: ExitPushed, Addr: 0x1009, Indirect: true, Sure: true}}},
		{"exchanged", "4889c8 48870424 c3", SweepOptions{}, []Exit{{Kind: ExitPushed, Addr: 0x1007, Indirect: true, Sure: true}}},
		{"popped, changed and pushed", "58 4889c1 4883c105 51 c3", SweepOptions{}, []Exit{{Addr: 0x1009, Sure: true}}},
		{"popped, replaced and pushed", "59 488b08 51 c3", SweepOptions{}, []Exit{{Kind: ExitPushed, Addr: 0x1005, Indirect: true, Sure: true}}},
		{"pushed and popped", "53 5b c3", SweepOptions{}, []Exit{{Addr: 0x1002, Sure: true}}},
		{"stored above, and given back", "50 48890424 4883c408 c3", SweepOptions{}, []Exit{{Addr: 0x1009, Sure: true}}},
		{"an argument pushed for a call", "50 e8fa0f0000 c3", SweepOptions{}, []Exit{{Addr: 0x1006, Sure: true}}},
		{"pushed, and left", "50 c9 c3", SweepOptions{}, []Exit{{Addr: 0x1002, Sure: true}}},
		{"pushed behind another return", "50 58 c3 5b c3", SweepOptions{}, []Exit{{Addr: 0x1002, Sure: true}, {Addr: 0x1004, Sure: true}}},
		{"frame pointer restored", "4889ec 5d c3 4889ec 59 ffe1", SweepOptions{},
			[]Exit{{Addr: 0x1004, Sure: true}, {Kind: ExitTail, Addr: 0x1009, Indirect: true, Sure: true}}},
		{"aligned stack given back", "498d62f8 c3", SweepOptions{}, []Exit{{Addr: 0x1004, Sure: true}}},
		{"arguments taken off the stack", "59 488d24dc 51 c3", SweepOptions{}, []Exit{{Addr: 0x1006, Sure: true}}},
		{"stack pointer restored from memory on the stack", "488b6540 c3", SweepOptions{}, []Exit{{Addr: 0x1004, Sure: true}}},
		{"coroutines, the stack in a register", "4889e0 4889fc 59 ffe1", SweepOptions{}, []Exit{{Kind: ExitTail, Addr: 0x1007, Indirect: true, Sure: true}}},
		{"coroutines, the stack in memory", "488926 488b27 59 ffe1", SweepOptions{}, []Exit{{Kind: ExitTail, Addr: 0x1007, Indirect: true, Sure: true}}},
		{"stack pointer and an address behind it", "488d4c2408 4889fc 59 ffe1", SweepOptions{}, []Exit{{Kind: ExitTail, Addr: 0x1009, Indirect: true, Sure: true}}},
		{"the address from elsewhere", "4889cc 59 ffe2", SweepOptions{}, []Exit{{Kind: ExitTail, Addr: 0x1004, Indirect: true, Sure: true}}},
		{"the stack is set on one of two ways", "7403 4889cc 59 ffe1", SweepOptions{}, []Exit{{Kind: ExitTail, Addr: 0x1006, Indirect: true, Sure: true}}},
		{"coroutines, with a frame pointer", "4889e0 4889fc 59 ffe1", withSlots(Slot{Base: RBP, Off: 16}), []Exit{{Kind: ExitTail, Addr: 0x1007, Indirect: true, Sure: true}}},
		{"ud2", "0f 0b", SweepOptions{}, []Exit{{Kind: ExitTrap, Addr: 0x1000, Sure: true}}},
		{"call at the end", "e8 fb 0f 00 00 66 90 cc", SweepOptions{}, []Exit{{Kind: ExitNoReturn, Addr: 0x1000, To: 0x2000, Sure: true}}},
		{"call in the middle", "e8 fb 0f 00 00 c3", SweepOptions{}, []Exit{{Addr: 0x1005, Sure: true}}},
		{"call of abort", "e8 fb 0f 00 00 c3", SweepOptions{NoReturn: func(a uint64) bool { return a == 0x2000 }},
			[]Exit{{Kind: ExitNoReturn, Addr: 0x1000, To: 0x2000, Sure: true}, {Addr: 0x1005, Sure: true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := Sweep(unhex(t, c.code), 0x1000, c.opts)
			if err != nil {
				t.Fatal(err)
			}
			if got := f.Exits(); !slices.Equal(got, c.want) {
				t.Errorf("%+v\nwant %+v", got, c.want)
			}
		})
	}
}

// functionsAt are options with which the words from 0x2000 on have these addresses; 0 is not known.
func functionsAt(list ...uint64) SweepOptions {
	return SweepOptions{Pointer: func(at uint64) (uint64, bool) {
		if n := (at - 0x2000) / 8; at >= 0x2000 && n < uint64(len(list)) && list[n] != 0 {
			return list[n], true
		}
		return 0, false
	}}
}

// withSlots are options with which the return address is at the first slot for the first instruction, and at the last
// one for the others.
func withSlots(list ...Slot) SweepOptions {
	return SweepOptions{Slot: func(at uint64) (Slot, bool) {
		s := list[0]
		if at > 0x1000 {
			s = list[len(list)-1]
		}
		s.Start, s.End = 0x1000, 0x1001
		return s, true
	}}
}

// withParts makes odd addresses those of parts of functions.
func withParts(o SweepOptions) SweepOptions {
	o.Part = func(at uint64) bool { return at >= 0x3000 && at&1 != 0 }
	return o
}

func TestTables(t *testing.T) {
	// cmp edi,2; ja +0x12; lea rdx,[rip+T]; movsxd rax,[rdx+rdi*4]; add rax,rdx; notrack jmp rax; nop; nop; ret
	pic := "83ff02 7712 488d15f40f0000 486304ba 4801d0 3effe0 90 90 c3"
	rel := func(to ...int64) []byte {
		var b []byte
		for _, v := range to {
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		}
		return b
	}
	const table = 0x2000
	good := rel(0x1016-table, 0x1017-table, 0x1018-table)
	// cmp rax,1; ja +0xf; lea rcx,[rip+T]; jmp [rcx+rax*8]; ret; xchg ax,ax; xchg ax,ax; ret
	based := "4883f801 770f 488d0df30f0000 ff24c1 c3 6690 6690 c3"
	two := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 0x1010), 0x1013)
	for _, c := range []struct {
		name, code string
		table      []byte
		want       []Table
	}{
		{"pic", pic, good, []Table{{Jump: 0x1013, At: table, Targets: []uint64{0x1016, 0x1017, 0x1018}, Bounded: true}}},
		{"pic, entry inside an instruction", pic, rel(0x1016-table, 0x1001-table, 0x1018-table), nil},
		{"pic, table cut off", pic, good[:8], nil},
		{"pic, entries not of 4 bytes", strings.Replace(pic, "486304ba", "486304fa", 1), good, nil},
		{"pic, entries behind a displacement", "83ff02 7713 488d15f40f0000 486344ba04 4801d0 3effe0 90 90 c3", rel(0x1017-table, 0x1018-table, 0x1019-table), nil},
		{"pic, the load from another register", strings.Replace(pic, "486304ba", "486304b9", 1), good, nil},
		{"not bounded", "90 90 90 eb 12" + pic[12:], good, []Table{{Jump: 0x1013, At: table, Targets: []uint64{0x1016, 0x1017, 0x1018}}}},
		{"absolute", "83ff01 7708 ff24fd00200000 90 c3", []byte{0x0c, 0x10, 0, 0, 0, 0, 0, 0, 0x0d, 0x10, 0, 0, 0, 0, 0, 0},
			[]Table{{Jump: 0x1005, At: table, Targets: []uint64{0x100c, 0x100d}, Bounded: true}}},
		{"base in a register", based, two, []Table{{Jump: 0x100d, At: table, Targets: []uint64{0x1010, 0x1013}, Bounded: true}}},
		// xor ecx,ecx behind the lea
		{"base overwritten", "4883f801 7711 488d0df30f0000 31c9 ff24c1 c3 6690 6690 c3", two, nil},
		{"base of another register", strings.Replace(based, "ff24c1", "ff24c2", 1), two, nil},
		{"base, entries of 4 bytes", strings.Replace(based, "ff24c1", "ff2481", 1), two, nil},
		{"base and a displacement", "4883f801 7710 488d0df30f0000 ff64c108 c3 6690 6690 c3", append(make([]byte, 8), binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 0x1011), 0x1012)...),
			[]Table{{Jump: 0x100d, At: table + 8, Targets: []uint64{0x1011, 0x1012}, Bounded: true}}},
		{"base and a displacement, table cut off", "4883f801 7710 488d0df30f0000 ff64c108 c3 6690 6690 c3", two, nil},
		{"a case that never happens", pic + "90", rel(0x1016-table, 0x101a-table, 0x1018-table), []Table{{Jump: 0x1013, At: table, Targets: []uint64{0x1016, 0x1018}, Bounded: true}}},
		{"table of the function itself", based, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 0x1000), 0x1000), nil},
		{"an entry in another part", pic, rel(0x1016-table, 0x3001-table, 0x1018-table),
			[]Table{{Jump: 0x1013, At: table, Targets: []uint64{0x1016, 0x1018}, Outside: []uint64{0x3001}, Bounded: true}}},
		{"entries in other parts only", pic, rel(0x3001-table, 0x3001-table, 0x3003-table), nil},
		{"an entry in another function", pic, rel(0x1016-table, 0x3000-table, 0x1018-table), nil},
		{"not bounded, an entry in another part", "90 90 90 eb 12" + pic[12:], rel(0x1016-table, 0x3001-table, 0x1018-table),
			[]Table{{Jump: 0x1013, At: table, Targets: []uint64{0x1016, 0x1018}, Outside: []uint64{0x3001}}}},
		{"the table's address set far away", "488d15f90f0000 e800000000 83ff02 770a 486304ba 4801d0 3effe0 90 c3", rel(0x101b-table, 0x3001-table, 0x101c-table),
			[]Table{{Jump: 0x1018, At: table, Targets: []uint64{0x101b, 0x101c}, Outside: []uint64{0x3001}, Bounded: true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := Sweep(unhex(t, c.code), 0x1000, withParts(SweepOptions{Read: image(table, c.table)}))
			if err != nil {
				t.Fatal(err)
			}
			got := f.Tables()
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%+v\nwant %+v", got, c.want)
			}
			var outside, left []uint64
			for _, x := range got {
				outside = append(outside, x.Outside...)
			}
			for _, x := range f.Exits() {
				if x.Switch {
					left = append(left, x.To)
				}
			}
			if !slices.Equal(left, outside) {
				t.Errorf("it is left for %#x by switches that lead to %#x", left, outside)
			}
		})
	}
}

func TestOnlyPadding(t *testing.T) {
	for code, want := range map[string]bool{
		"": true, "90": true, "cc cc": true, "66 90 0f 1f 40 00 cc": true, "66 2e 0f 1f 84 00 00 00 00 00": true,
		"c3": false, "90 c3": false, "0f 1f": false, "90 0f 1f 40": false, "31 c0": false, "90 f3 0f 1e fa": false,
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(code, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := OnlyPadding(b); got != want {
			t.Errorf("%s: %v", code, got)
		}
	}
}
