package quote

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestAppend(t *testing.T) {
	for _, tt := range []struct{ in, plain, text, json string }{
		{"", "", `""`, `""`},
		{"plain text", "plain text", `"plain text"`, `"plain text"`},
		{`a "b" \x1b`, `a "b" \x1b`, `"a \"b\" \\x1b"`, `"a \"b\" \\x1b"`},
		{"\x1b[2J", `\x1b[2J`, `"\x1b[2J"`, `"\u001b[2J"`},
		{"a\nb\tc\rd\x00e\x7f", `a\nb\tc\rd\x00e\x7f`, `"a\nb\tc\rd\x00e\x7f"`, `"a\nb\tc\rd\u0000e\u007f"`},
		{"\u009b31m\u0085", `\xc2\x9b31m\xc2\x85`, `"\xc2\x9b31m\xc2\x85"`, `"\u009b31m\u0085"`},
		{"\x9b31m", `\x9b31m`, `"\x9b31m"`, `"\ufffd31m"`},
		{"a\u202eb\u2066c\u200fd", `a\xe2\x80\xaeb\xe2\x81\xa6c\xe2\x80\x8fd`, `"a\xe2\x80\xaeb\xe2\x81\xa6c\xe2\x80\x8fd"`, `"a\u202eb\u2066c\u200fd"`},
		{"\u2028\u2029\ufeff", `\xe2\x80\xa8\xe2\x80\xa9\xef\xbb\xbf`, `"\xe2\x80\xa8\xe2\x80\xa9\xef\xbb\xbf"`, `"\u2028\u2029\ufeff"`},
		{"\U000e0041", `\xf3\xa0\x81\x81`, `"\xf3\xa0\x81\x81"`, `"\udb40\udc41"`},
		{"naïve 日本\u3000語 🙂 \ufffd", "naïve 日本\u3000語 🙂 \ufffd", "\"naïve 日本\u3000語 🙂 \ufffd\"", "\"naïve 日本\u3000語 🙂 \ufffd\""},
		{"\xff\xfe\xc3", `\xff\xfe\xc3`, `"\xff\xfe\xc3"`, `"\ufffd\ufffd\ufffd"`},
		{"it's", "it's", `"it's"`, `"it's"`},
	} {
		for _, got := range []struct{ what, have, want string }{
			{"AppendPlain", string(AppendPlain(nil, tt.in)), tt.plain}, {"Plain", Plain(tt.in), tt.plain},
			{"AppendText", string(AppendText(nil, []byte(tt.in))), tt.text}, {"AppendJSON", string(AppendJSON(nil, tt.in)), tt.json},
		} {
			if got.have != got.want {
				t.Errorf("%s(%q) = %s, want %s", got.what, tt.in, got.have, got.want)
			}
		}
	}
	if got := string(AppendChar(nil, `'\"`)); got != `'\'\\"'` {
		t.Errorf("AppendChar: %s", got)
	}
	if got := string(AppendHex(nil, []byte{0, 0xab})); got != `"00ab"` {
		t.Errorf("AppendHex: %s", got)
	}
}

// FuzzAppend: whatever is printed can be shown, and read back.
func FuzzAppend(f *testing.F) {
	for _, s := range []string{"plain", "\"\\\x00\x1b[0m", "\u202e\u009b\u2028", "\xff\xc3(\xe2\x80", "日本 🙂", "\U000e0041"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text, js := string(AppendText(nil, s)), AppendJSON(nil, s)
		for _, out := range []string{text, string(js), Plain(s)} {
			for _, r := range out {
				if !strconv.IsGraphic(r) || r == utf8.RuneError && !strings.ContainsRune(s, r) {
					t.Errorf("%q has %U as it is", out, r)
				}
			}
		}
		if back, err := strconv.Unquote(text); back != s || err != nil {
			t.Errorf("%s reads back as %q, %v", text, back, err)
		}
		var back string
		if err := json.Unmarshal(js, &back); err != nil {
			t.Fatalf("%s: %v", js, err)
		}
		if want := strings.ToValidUTF8(s, "\ufffd"); utf8.ValidString(s) && back != want {
			t.Errorf("%s reads back as %q", js, back)
		}
	})
}

func TestAppendAllocates(t *testing.T) {
	dst, s := make([]byte, 0, 1024), []byte("a text with \"quotes\", \x1b and ünïcode")
	if n := testing.AllocsPerRun(100, func() { dst = AppendJSON(AppendText(AppendPlain(dst[:0], s), s), s) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
