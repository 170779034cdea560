package insn

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestRelocateBytes(t *testing.T) {
	const from, near, far = 0x400000, 0x500000, 0x7f0000000000
	for _, c := range []struct {
		name, code string
		to         uint64
		opts       Options
		want       string
	}{
		{"plain", "4889e5", near, Options{}, "4889e5 e9fbffefff"},                                                          // mov; jmp 0x400003
		{"plain far", "4889e5", far, Options{}, "4889e5 ff2500000000 0300400000000000"},                                    // mov; jmp [rip]
		{"plain, chained", "4889e5", near, Options{NoJumpBack: true}, "4889e5"},                                            // mov
		{"endbr64", "f30f1efa", near, Options{NoJumpBack: true}, "f30f1efa"},                                               // as it is
		{"ret", "c3", near, Options{}, "c3"},                                                                               // as it is
		{"rip", "488b0500010000", near, Options{NoJumpBack: true}, "488b050001f0ff"},                                       // mov rax,[rip-0xfff00]
		{"lea far", "4c8d0d00010000", far, Options{NoJumpBack: true}, "49b9 0701400000000000"},                             // movabs r9
		{"jmp short", "eb10", near, Options{}, "e90d00f0ff"},                                                               // jmp rel32
		{"jmp to itself", "ebfe", near, Options{}, "e9fbffefff"},                                                           // to the site
		{"jcc short", "7410", near, Options{NoJumpBack: true}, "0f840c00f0ff"},                                             // je rel32
		{"jcc far", "7410", far, Options{NoJumpBack: true}, "750e ff2500000000 1200400000000000"},                          // jne +14; jmp
		{"loop", "e210", near, Options{NoJumpBack: true}, "e202 eb05 e90900f0ff"},                                          // loop +2; jmp +5; jmp
		{"jecxz keeps 67", "67e310", near, Options{NoJumpBack: true}, "67e302 eb05 e90900f0ff"},                            // jecxz +2 …
		{"jcc, led", "7410", near, Options{NoJumpBack: true, Lead: map[uint64]uint64{0x400012: 0x500100}}, "0f84fa000000"}, // je there
		{"jump back, led", "90", near, Options{Lead: map[uint64]uint64{0x400001: 0x500100}}, "90 e9fa000000"},
		{"call", "e800010000", near, Options{}, "ff3505000000 e9fa00f0ff 0500400000000000"},            // push [rip+5]; jmp; .quad
		{"call kept", "e800010000", near, Options{KeepCall: true, NoJumpBack: true}, "e80001f0ff"},     // call
		{"call register", "ffd0", near, Options{}, "ff3502000000 ffe0 0200400000000000"},               // push; jmp rax
		{"call by stack", "ff542408", near, Options{}, "ff3507000000 ffa42410000000 0400400000000000"}, // jmp [rsp+16]
		{"load far spills rsi", "488b0500010000", far, Options{NoJumpBack: true},
			"488d642480 56 48be0701400000000000 488b06 5e 488da42480000000"},
		{"load of rsi far spills rdi", "488b3500010000", far, Options{NoJumpBack: true},
			"488d642480 57 48bf0701400000000000 488b37 5f 488da42480000000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := Relocate(unhex(t, c.code), from, c.to, c.opts)
			if err != nil {
				t.Fatal(err)
			}
			want := unhex(t, c.want)
			if !bytes.Equal(m.Code, want) {
				t.Errorf("% x\nwant % x", m.Code, want)
			}
		})
	}
}

func TestRelocateRefuses(t *testing.T) {
	const near, far = 0x500000, 0x7f0000000000
	for _, c := range []struct {
		name, code string
		to         uint64
		rule       string
	}{
		{"syscall", "0f05", near, "system call"},
		{"sysenter", "0f34", near, "system call"},
		{"int3", "cc", near, "trap"},
		{"int 0x80", "cd80", near, "trap"},
		{"hlt", "f4", near, "hlt"},
		{"in", "e401", near, "privileged"},
		{"xbegin", "c7f800000000", near, "transaction"},
		{"iret", "48cf", near, "far branch"},
		{"66 call", "66e800000000", near, "operand-size"},
		{"66 jmp", "66e900000000", near, "operand-size"},
		{"undefined", "06", near, "can't be decoded"},
		{"rex2", "d50001c0", near, "can't be decoded"},
		{"cut off", "488b05", near, "can't be decoded"},
		{"call rsp", "ffd4", near, "stack pointer"},
		{"call by its own slot", "ff5424f8", near, "slot"},
		{"add to rsp far", "48032500010000", far, "stack pointer"},
		{"push fs far", "64ff3500010000", far, "thread-local"},
		{"push 16 far", "66ff3500010000", far, "16-bit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Relocate(unhex(t, c.code), 0x400000, c.to, Options{})
			var re *RefusedError
			if !errors.As(err, &re) || !strings.Contains(err.Error(), c.rule) {
				t.Errorf("%v, want %q", err, c.rule)
			}
		})
	}
}

// TestWindowRuns runs windows of several instructions in their place and moved,
// with branches between them.
func TestWindowRuns(t *testing.T) {
	windows := []struct{ name, code string }{
		{"straight", "4889d8 4801d1 90 48ffc6"},
		{"jcc over one", "4885c9 7403 48ffc0 48ffc3"},
		{"loop inside", "90 48ffc0 e2fb 48ffc3"},             // 1: inc rax; loop 1b
		{"jmp inside and back", "eb03 48ffc0 48ffc3 4839c3"}, // over the first inc
		{"jrcxz out", "e330 48ffc0 480fafc1"},
		{"call last", "4889d8 e8f7000000"},
		{"ret last", "48ffc0 c3"},
		{"rip in the middle", "48ffc0 4803052a000000 48ffc3"},
	}
	r := rand.New(rand.NewPCG(3, 4))
	var b batch
	type run struct {
		name     string
		code     []byte
		original int
		copied   int
	}
	var runs []run
	for _, w := range windows {
		code := unhex(t, w.code)
		for n := range 16 {
			in := registers(r, n)
			in.Regs[RCX] = uint64(n%4) + 1
			if w.name == "rip in the middle" && n == 0 {
				continue
			}
			original := b.add(formsAt, code, in)
			for _, to := range []uint64{execNear, execFar} {
				m, err := RelocateWindow(code, formsAt, to, Options{})
				if err != nil {
					t.Fatalf("%s: %v", w.name, err)
				}
				runs = append(runs, run{w.name, m.Code, original, b.add(to, m.Code, in)})
			}
		}
	}
	outs := b.run(t)
	for _, x := range runs {
		if d := differ(outs[x.original], outs[x.copied]); d != "" {
			t.Errorf("%s: %s\n% x", x.name, d, x.code)
		}
	}
}

func TestWindowRefuses(t *testing.T) {
	for _, c := range []struct{ name, code, rule string }{
		{"call before the end", "e800000000 90", "would return into the patch"},
		{"between instructions", "eb01 4889d8", "between two instructions"},
		{"empty", "", "no instruction"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := RelocateWindow(unhex(t, c.code), 0x1000, 0x2000, Options{})
			if err == nil || !strings.Contains(err.Error(), c.rule) {
				t.Errorf("%v, want %q", err, c.rule)
			}
		})
	}
}

// A Relocator makes of each window what RelocateWindow makes of it, whatever it has relocated before, and SameOffset
// knows where copies lie.
func TestRelocator(t *testing.T) {
	var r Relocator
	copies := 0
	for _, text := range []string{
		"4889d8 4801d1 90 48ffc6", "488b0500010000 90", "e800000000 90", "eb01 4889d8", "90 48ffc0 e2fb 48ffc3", "eb03 48ffc0 48ffc3 4839c3",
		"4889d8 e8f7000000", "", "48ffc0 c3", "90 90 90 7410 90", "f30f1efa 4889d8", "48ffc0 4803052a000000 48ffc3",
	} {
		code := unhex(t, text)
		for _, to := range []uint64{0x2000, 0x7f0000000000} {
			want, werr := RelocateWindow(code, 0x1000, to, Options{})
			got, err := r.Window(code, 0x1000, to, Options{})
			if (err == nil) != (werr == nil) || err != nil && err.Error() != werr.Error() {
				t.Fatalf("%s: %v, want %v", text, err, werr)
			}
			if !bytes.Equal(got.Code, want.Code) || !slices.Equal(got.Points, want.Points) || !slices.Equal(got.Starts, want.Starts) || got.Falls != want.Falls {
				t.Errorf("%s: %+v, want %+v", text, got, want)
			}
			for off := range len(code) + 2 {
				if err == nil && SameOffset(code, off) {
					copies++
					if at, ok := want.Copy(0x1000 + uint64(off)); !ok || at != off {
						t.Errorf("%s+%d: its copy is at %d, %v", text, off, at, ok)
					}
				}
			}
		}
	}
	if copies < 12 {
		t.Errorf("%d copies are at the same offset", copies)
	}
}

func TestCopyOffsets(t *testing.T) {
	m, err := RelocateWindow(unhex(t, "4889d8 7410 90"), 0x1000, 0x2000, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from uint64
		off  int
		ok   bool
	}{{0x1000, 0, true}, {0x1003, 3, true}, {0x1005, 9, true}, {0x1001, 0, false}} {
		if off, ok := m.Copy(c.from); off != c.off || ok != c.ok {
			t.Errorf("%#x is at %d, %v, want %d, %v", c.from, off, ok, c.off, c.ok)
		}
	}
	if p := m.Where(4); p.IP != 0x1003 || p.State != Main {
		t.Errorf("in the jcc: %+v", p)
	}
	if p := m.Where(len(m.Code) - 1); p.State != After || p.IP != 0x1006 {
		t.Errorf("in the jump back: %+v", p)
	}
}

// TestPoints: a copy that takes several instructions says of each in what state
// the thread is there: whether the original has run, how far the stack pointer
// is off, and where the value of a register that was lent lies.
func TestPoints(t *testing.T) {
	const from, near, far = 0x400000, 0x500000, 0x7f0000000000
	at := func(off uint16, s State, sp int16, scratch Reg, ip uint64) Point {
		return Point{Off: off, State: s, AddSP: sp, Scratch: scratch, IP: from + ip}
	}
	for _, c := range []struct {
		name, code string
		to         uint64
		opts       Options
		want       []Point
	}{
		// lea; push rsi; movabs; mov; pop; lea, and the end
		{"load far", "488b0500010000", far, Options{NoJumpBack: true}, []Point{
			at(0, Before, 0, NoReg, 0), at(5, Before, 128, NoReg, 0), at(6, Before, 136, RSI, 0), at(16, Main, 136, RSI, 0),
			at(19, After, 136, RSI, 7), at(20, After, 128, NoReg, 7), at(28, After, 0, NoReg, 7),
		}},
		{"call kept", "e800010000", near, Options{KeepCall: true}, []Point{at(0, Main, 0, NoReg, 0), at(5, After, 0, NoReg, 5)}},
		// call [rip+2]; jmp over the address; jmp back
		{"call kept, far", "e800010000", far, Options{KeepCall: true}, []Point{
			at(0, Main, 0, NoReg, 0), at(6, After, 0, NoReg, 5), at(16, After, 0, NoReg, 5),
		}},
		// push the return address; jmp
		{"call", "e800010000", near, Options{}, []Point{at(0, Main, 0, NoReg, 0), at(6, Main, 8, NoReg, 0)}},
	} {
		m, err := Relocate(unhex(t, c.code), from, c.to, c.opts)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(m.Points, c.want) {
			t.Errorf("%s: % x has\n%+v, want\n%+v", c.name, m.Code, m.Points, c.want)
		}
	}
}

// TestUnusedBits: the bit that extends a base register means nothing in an
// operand relative to rip, and must not make another register of the one that
// takes its place.
func TestUnusedBits(t *testing.T) {
	for name, c := range map[string][2]string{
		"legacy":         {"498b05", "488b06"},
		"vex, two bytes": {"c5fc1005", "c5fc1006"},
		"vex":            {"c4c27d1805", "c4e27d1806"},
		"vex, bit clear": {"c4e27d1805", "c4e27d1806"},
		"evex":           {"62d17c481005", "62f17c481006"},
		"xop":            {"8fc97881 05", "8fe97881 06"},
	} {
		in := unhex(t, c[0])
		m, err := Relocate(append(in, 0, 1, 0, 0), 0x400000, 0x7f0000000000, Options{NoJumpBack: true})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := unhex(t, c[1])
		if got := m.Code[16 : 16+len(want)]; !bytes.Equal(got, want) {
			t.Errorf("%s: % x, want % x", name, got, want)
		}
	}
}
