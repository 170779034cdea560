package insn

import (
	"errors"
	"testing"
)

// samePart makes sure that DecodePart says of code what Decode does.
func samePart(t *testing.T, code []byte) {
	t.Helper()
	i, err := Decode(code)
	p, perr := DecodePart(code)
	if !errors.Is(perr, err) || err == nil && (p.Flags != i.Flags || p.Len != i.Len) {
		t.Fatalf("% x: a part is %+v, %v; Decode says %+v, %v", code, p, perr, i, err)
	}
	if err != nil {
		return
	}
	to, ok := i.Target(0x1000, code)
	if pto, pok := p.Target(0x1000, code); pok != ok || ok && pto != to {
		t.Fatalf("% x: a part leads to %#x, %v; Decode says %#x, %v", code, pto, pok, to, ok)
	}
}

// TestDecodePart compares all opcodes of the first two maps with every ModRM, behind prefixes.
func TestDecodePart(t *testing.T) {
	behind := unhex(t, "25 04 11 22 33 44 55 66 77 88 99 aa")
	for _, c := range []struct {
		prefixes string
		step     int // through ModRM
	}{
		{"", 1}, {"41", 1}, {"48", 1}, {"66", 1}, {"f3", 1}, {"f2", 1}, {"4f", 3}, {"44", 3}, {"40", 5}, {"66 4d", 5}, {"f3 48", 5},
		{"f0", 7}, {"67", 7}, {"64", 7}, {"2e 3e", 7}, {"66 f3", 11}, {"f2 66", 11}, {"f3 f2", 11}, {"48 66", 11}, {"48 41", 11},
		{"66 66 66 2e 48", 13}, {"3e 3e 3e 3e 3e 3e", 13},
	} {
		for _, escape := range []string{"", "0f"} {
			code := unhex(t, c.prefixes+escape)
			for op := range 256 {
				for m := op % c.step; m < 256; m += c.step {
					samePart(t, append(append(code[:len(code):len(code)], byte(op), byte(m)), behind...))
				}
			}
		}
	}
	for m := range 256 {
		for sib := range 256 {
			samePart(t, append([]byte{0x8b, byte(m), byte(sib)}, behind...))
		}
	}
}

// TestDecodePartCutOff: where code ends within an instruction, DecodePart says so as Decode does.
func TestDecodePartCutOff(t *testing.T) {
	for _, text := range []string{
		"c3", "c2 08 00", "74 10", "0f 84 11 22 33 44", "e8 11 22 33 44", "66 81 c1 11 22", "48 b8 11 22 33 44 55 66 77 88",
		"48 8b 04 25 11 22 33 44", "f3 0f 10 84 24 11 22 33 44", "66 66 2e 0f 1f 84 00 00 00 00 00", "c5 f8 77",
		"2e 2e 2e 2e 2e 81 84 24 11 22 33 44 11 22 33 44", "26 26 48 c7 84 24 11 22 33 44 11 22 33 44",
	} {
		code := unhex(t, text)
		for n := range len(code) + 1 {
			samePart(t, code[:n])
		}
	}
}
