package fetch

import (
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"
)

// What texts of wide characters become that lie across what is read at once, at the end
// of what is mapped, or are no text.
func TestWideTexts(t *testing.T) {
	const at, text = 0x20000, 0x30000
	units := func(s string) (out []uint32) {
		for _, u := range utf16.Encode([]rune(s)) {
			out = append(out, uint32(u))
		}
		return out
	}
	runes := func(s string) (out []uint32) {
		for _, r := range s {
			out = append(out, uint32(r))
		}
		return out
	}
	a := strings.Repeat("a", 31)
	for _, c := range []struct {
		name  string
		unit  int
		units []uint32
		nul   bool // up to NUL, not counted
		at    uint64
		want  string
	}{
		{"a pair across two reads", 2, units(a + "😀b"), false, text, `"` + a + `😀b"`},
		{"the same up to NUL", 2, append(units(a+"😀b"), 0), true, text, `"` + a + `😀b"`},
		{"NUL among what is counted", 2, []uint32{'a', 0, 'b'}, false, text, `"a\x00b"`},
		{"a first half at the end", 2, []uint32{'a', 0xd83d}, false, text, `"a\xed\xa0\xbd"`},
		{"a first half before NUL", 2, []uint32{'a', 0xd83d, 0}, true, text, `"a\xed\xa0\xbd"`},
		{"two first halves and a second", 2, []uint32{0xd83d, 0xd83d, 0xde00}, false, text, `"\xed\xa0\xbd😀"`},
		{"a second half", 2, []uint32{0xde00, 'a'}, false, text, `"\xed\xb8\x80a"`},
		{"a pair of UTF-32 is none", 4, []uint32{0xd83d, 0xde00}, false, text, `"\xed\xa0\xbd\xed\xb8\x80"`},
		{"no character", 4, []uint32{'a', 0x110000}, false, text, "(invalid)"},
		{"far from any", 4, []uint32{0xffffffff}, false, text, "(invalid)"},
		{"up to the end of the page", 4, append(runes(a+"😀"), 0), true, text + pageSize - 4*33, `"` + a + `😀"`},
		{"none", 2, nil, false, text, `""`},
		{"a null pointer", 2, nil, true, 0, "0x0"},
		{"cut", 4, runes(strings.Repeat("€", 200)), false, text, `"` + strings.Repeat("€", 169) + `"...`},
		{"as long as can be", 4, runes(strings.Repeat("€", 169)), false, text, `"` + strings.Repeat("€", 169) + `"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b []byte
			for _, u := range c.units {
				b = append(b, binary.LittleEndian.AppendUint32(nil, u)[:c.unit]...)
			}
			m := fakeMemory{}
			m.put64(at, c.at)
			m.put64(at+8, uint64(len(c.units)))
			m.put(c.at, b)
			x := &Content{Kind: ContentText, Name: "text", Size: 16, Stride: int64(c.unit), Ptr: loadAt(0), Count: loadAt(8)}
			if c.nul {
				x.Count = nil
			}
			env := testEnv()
			env.vars = map[string]Variable{"x": containerOf(x)}
			ctx := testContext()
			ctx.Mem, ctx.Regs.GPR[DI] = m, at
			if got, _ := run(t, "p work x", env, ctx); got != "x="+c.want {
				t.Errorf("got  %s\nwant x=%s", got, c.want)
			}
		})
	}
}
