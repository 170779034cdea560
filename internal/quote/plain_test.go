package quote

import (
	"testing"
	"unicode/utf8"
)

func TestAppendPlain(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", ""},
		{"hello, world ~", "hello, world ~"},
		{"\n\t\r\x00\x1b[1m\x7f", `\n\t\r\x00\x1b[1m\x7f`},
		{"a\u0080b\u009bc\u009f", `a\xc2\x80b\xc2\x9bc\xc2\x9f`},
		{"\u00a0größe 日本 🐧", "\u00a0größe 日本 🐧"},
		{"\x9b31m", `\x9b31m`},                           // C1 of an 8-bit terminal
		{"gr\xf6\xdfe \xe6\x97", `gr\xf6\xdfe \xe6\x97`}, // Latin 1; and a cut rune
		{"\xf0\x9f\x90", `\xf0\x9f\x90`},
		{"\ufffd", "\ufffd"},
		{"end\x1b", `end\x1b`},
	}
	for _, tt := range tests {
		if got := string(AppendPlain([]byte("k:"), tt.in)); got != "k:"+tt.want {
			t.Errorf("%q: got %q, want %q", tt.in, got, tt.want)
		}
		if got := string(AppendPlain(nil, []byte(tt.in))); got != tt.want {
			t.Errorf("bytes of %q: got %q, want %q", tt.in, got, tt.want)
		}
	}
}

func FuzzAppendPlain(f *testing.F) {
	for _, s := range []string{"", "abc", "\xc2", "\xc2\x9b", "\xff\x9b\xc2", "日本\x1b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := AppendPlain(nil, s)
		for b := got; len(b) > 0; {
			r, n := utf8.DecodeRune(b)
			if r == utf8.RuneError && n == 1 {
				r = rune(b[0])
			}
			if r < 0x20 || r >= 0x7f && r < 0xa0 {
				t.Fatalf("%q: %q has a control character", s, got)
			}
			b = b[n:]
		}
		if again := AppendPlain(nil, got); string(again) != string(got) {
			t.Errorf("%q: %q, and again %q", s, got, again)
		}
	})
}
