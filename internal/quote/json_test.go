package quote

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestAppendJSON(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"empty", "", `""`},
		{"plain", "hello, world", `"hello, world"`},
		{"quote and backslash", `a"b\c`, `"a\"b\\c"`},
		{"named escapes", "\n\r\t", `"\n\r\t"`},
		{"other controls", "\x00\x01\x1f\x7f", "\"\\u0000\\u0001\\u001f\\u007f\""},
		{"C1", "a\u009bb\u0080\u00a0", "\"a\\u009bb\\u0080\u00a0\""},
		{"html is left alone", "<a>&b", `"<a>&b"`},
		{"UTF-8", "größe 日本 🐧", `"größe 日本 🐧"`},
		{"bad byte", "a\xffb", `"a\ufffdb"`},
		{"cut rune", "a\xe6\x97", `"a\ufffd\ufffd"`},
		{"surrogate as bytes", "\xed\xa0\x80", `"\ufffd\ufffd\ufffd"`},
		{"a real U+FFFD stays", "\ufffd", "\"\ufffd\""},
		{"line separators", "\u2028\u2029", `"\u2028\u2029"`},
		{"bad at the very end of four", "xyz\xf0", `"xyz\ufffd"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(AppendJSON(nil, tt.in)); got != tt.want {
				t.Errorf("string: got %s, want %s", got, tt.want)
			}
			if got := string(AppendJSON([]byte("k:"), []byte(tt.in))); got != "k:"+tt.want {
				t.Errorf("bytes: got %s, want k:%s", got, tt.want)
			}
		})
	}
}

func FuzzJSONString(f *testing.F) {
	for _, s := range []string{"", "abc", "\x00", "\xff\xfe", "a\u2028b", "\"\\", "\xf0\x9f\x90", strings.Repeat("é", 9)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := AppendJSON(nil, s)
		if !json.Valid(got) || !utf8.Valid(got) {
			t.Fatalf("not JSON: %q", got)
		}
		theirs, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var a, b string
		if err := json.Unmarshal(got, &a); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		if err := json.Unmarshal(theirs, &b); err != nil {
			t.Fatal(err)
		}
		if a != b {
			t.Errorf("%q reads as %q, encoding/json's as %q", s, a, b)
		}
		for _, c := range got {
			if c < 0x20 {
				t.Fatalf("a control character in %q would break the line", got)
			}
		}
	})
}

func TestAppendJSONAllocatesNothing(t *testing.T) {
	buf := make([]byte, 0, 1024)
	text := []byte("text with \xff and \"quotes\" and ü")
	if n := testing.AllocsPerRun(100, func() { buf = AppendJSON(buf[:0], text) }); n != 0 {
		t.Errorf("%v allocations for each string", n)
	}
}

func TestAppendHexString(t *testing.T) {
	if got := string(AppendHex(nil, []byte{0, 0x7f, 0xff})); got != `"007fff"` {
		t.Errorf("got %s", got)
	}
}
