package fetch

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestProperties evaluates random definitions over random registers and
// memory, and compares every scalar with what Go's own arithmetic makes of the
// same bytes: slots, fault bits and texts of a record must not disturb each
// other.
func TestProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for round := range 500 {
		mem := fakeMemory{}
		page := make([]byte, pageSize)
		for i := range page {
			page[i] = byte(rng.Uint32())
		}
		mem.put(0x10000, page)
		regs := &Regs{}
		regs.GPR[DI] = 0x10000 + uint64(rng.IntN(pageSize))
		regs.GPR[AX] = rng.Uint64()
		c := &Context{Regs: regs, Mem: mem}
		var words, want []string
		for i := range 1 + rng.IntN(80) {
			word, value := randomValue(rng, regs, page)
			words = append(words, fmt.Sprintf("v%d=%s", i, word))
			want = append(want, value)
		}
		def := "p f " + strings.Join(words, " ")
		p, err := mustParse(t, def).Compile(nil)
		if err != nil {
			t.Fatal(err)
		}
		rec, _ := p.Eval(c, nil)
		vals, err := p.Decode(rec, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range p.Fields() {
			if got := string(AppendText(nil, f.Type, vals[i], nil)); got != want[i] {
				t.Fatalf("round %d, %s = %s, want %s", round, words[i], got, want[i])
			}
		}
	}
}

// randomValue makes an argument and, by other means, the text it prints.
func randomValue(r *rand.Rand, regs *Regs, page []byte) (word, want string) {
	size := 1 << r.IntN(4)
	letter := "uxs"[r.IntN(3)]
	typ := fmt.Sprintf("%c%d", letter, size*8)
	print := func(b []byte) string {
		var full [8]byte
		copy(full[:], b[:size])
		v := binary.LittleEndian.Uint64(full[:])
		switch letter {
		case 'u':
			return fmt.Sprint(v)
		case 'x':
			return fmt.Sprintf("%#x", v)
		}
		shift := 64 - 8*size
		return fmt.Sprint(int64(v<<shift) >> shift)
	}
	switch r.IntN(5) {
	case 0:
		return "%ax:" + typ, print(binary.LittleEndian.AppendUint64(nil, regs.GPR[AX]))
	case 1:
		width := 1 + r.IntN(size*8)
		off := r.IntN(size*8 - width + 1)
		v := regs.GPR[AX] << (64 - width - off) >> (64 - width)
		return fmt.Sprintf("%%ax:b%d@%d/%d", width, off, size*8), fmt.Sprint(v)
	case 2:
		n := r.IntN(1 << r.IntN(10))
		s := strings.Repeat("x", n%200)
		return `\"` + s + `"`, `"` + s + `"`
	}
	off := r.IntN(2*pageSize) - pageSize
	at := int(regs.GPR[DI]) - 0x10000 + off
	count := r.IntN(5)
	word = fmt.Sprintf("%+d(%%di):%s", off, typ)
	if count > 0 {
		word += fmt.Sprintf("[%d]", count)
	}
	if at < 0 || at+size*max(count, 1) > pageSize {
		return word, "(fault)"
	}
	if count == 0 {
		return word, print(page[at:])
	}
	var elems []string
	for i := range count {
		elems = append(elems, print(page[at+i*size:]))
	}
	return word, "{" + strings.Join(elems, ",") + "}"
}
