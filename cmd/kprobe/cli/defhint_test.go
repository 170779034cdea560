package cli

import (
	"errors"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/probe"
	"kprobe/symbols"
)

// TestDefinitionHints feeds what people bring from other tools, or mistype,
// and wants the form that works here in the answer.
func TestDefinitionHints(t *testing.T) {
	for def, want := range map[string]string{
		"p:libc:malloc":                        "p libc:malloc",
		"r:libc:malloc":                        "r libc:malloc",
		"p:":                                   "write the place",
		"libc:open path=$arg1:string":          "+0($arg1):string",
		"libc:open path=%di:ustring":           "+0(%di):ustring",
		"main.f $arg2:string":                  "$arg2 alone",
		"uprobe:libc:malloc { x }":             "'p libc:malloc n=$arg1'",
		"uretprobe:/lib/libc.so.6:malloc":      "'r /lib/libc.so.6:malloc ret=$retval'",
		"usdt:libc:x":                          "USDT",
		"libc:malloc size=:u64":                "single quotes",
		"libc:malloc +0()":                     "single quotes",
		"libc:malloc $retval":                  "r PLACE $retval",
		"libc:malloc size=$arg1 if sz > 3":     "the definition fetches size;",
		"libc:malloc if sz > 3":                "fetches nothing",
		"libc:malloc n=$arg1 if $arg1 > 3":     "n=$arg1 if n",
		"libc:write p=+0($arg2):string if p>3": "==, != or ~",
		"libc:malloc n=$arg1 if n":             "NAME OPERATOR VALUE",
		"libc:malloc n=$arg1 if n>1 and n<3":   "&& and ||",
		"libc:malloc n=$arg1 if (n > 1":        "a ) is missing",
		"handle %edi":                          "%di:u32",
		"handle %al":                           "%ax:u8",
		"handle %r8d":                          "%r8:u32",
		"handle %zz":                           "%xmm15",
		"handle x=$arg1:int":                   ":s32",
		"handle x=$arg1:blob":                  "u8 to u64",
		"handle $ret":                          "$retval",
		"handle $rdi":                          "%di",
		"handle $1":                            "$arg1",
		"handle $nothing":                      "$params",
		"handle-request":                       "no symbol has a -",
		"libc:malloc+zz":                       "zz is not an offset",
		"w handle:8":                           "rw@counter",
		"w rw@0x1000:3":                        "1, 2, 4 or 8 bytes",
		"r9999 libc:malloc":                    "4096 calls",
		"handle a=+0($arg1):u8[65]":            "64 elements",
		"handle a=+0($arg1):bytes[5000]":       "4096 bytes",
		"handle a=$arg1:b40@0/32":              "b4@2/8",
		"handle $duration":                     "r PLACE $duration",
		"handle fd fd":                         "NAME=ARGUMENT",
		"\x7fELF\x02\x01\x00\xff":              "not text",
	} {
		_, err := fetch.Parse(def)
		var syntax *fetch.SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("%s is accepted", def)
			continue
		}
		if h := hint(err); !strings.Contains(h, want) {
			t.Errorf("%s: hint %q, want %q in it (%v)", def, h, want, err)
		}
	}
}

// TestDollarHints: what is a name of the language with a $ in front is said so,
// where no variable has the name.
func TestDollarHints(t *testing.T) {
	for word, want := range map[string]string{
		"arg1": "did you mean $arg1?", "n=arg12:u8": "did you mean $arg12?", "retval": "did you mean $retval?",
		"arg": "", "argv": "", "arg1x": "", "size": "",
	} {
		d, err := fetch.Parse("handle " + word)
		if err != nil {
			t.Fatal(err)
		}
		err = d.Error(fetch.NoBTFArg, "no variable of this name", symbols.ErrNoSymbol)
		var syntax *fetch.SyntaxError
		if errors.As(err, &syntax) {
			syntax.Col = len("handle ")
		}
		if h := hint(err); h != want {
			t.Errorf("%s: hint %q, want %q", word, h, want)
		}
	}
}

func TestLookupHints(t *testing.T) {
	tests := []struct {
		err  error
		want string
	}{
		{&symbols.NotMappedError{Module: "size=$arg1"}, "single quotes"},
		{&symbols.NotMappedError{Module: "path=+0($arg1)"}, "one word"},
		{&symbols.NotMappedError{Module: "main.c"}, "main.c:12"},
		{&symbols.NotMappedError{Module: "/no/such/file"}, "/no/such/file: no such file"},
		{&symbols.NotMappedError{Module: "/bin/sh", Candidates: []string{"sh"}}, "another file of this name"},
		{&symbols.NotMappedError{Module: "libc", Static: true}, "without libc:"},
		{&symbols.NotMappedError{Module: "kprobe"}, "bpftrace"},
		{&symbols.NotMappedError{Module: "uprobe"}, "'p libc:malloc n=$arg1'"},
		{&symbols.NotMappedError{Module: "libz"}, "--pending"},
		{&symbols.NotMappedError{Module: "libstdc++"}, "--pending"},
		{&symbols.NotMappedError{Module: "libc-2.31"}, "--pending"},
		{&symbols.NotMappedError{Module: "/no/such-folder/libstdc++.so"}, "/no/such-folder/libstdc++.so: no such file"},
		{&symbols.NotMappedError{Module: "/proc/self"}, "/proc/self is a folder"},
		{&probe.DefError{Def: &fetch.Def{Text: "4711"}, Err: &symbols.NotCodeError{Place: "0x1267"}}, "-p PID,PID"},
	}
	for _, tt := range tests {
		if h := hint(tt.err); !strings.Contains(h, tt.want) {
			t.Errorf("%v: hint %q, want %q in it", tt.err, h, tt.want)
		}
	}
}

func TestHelpTopicFitsATerminal(t *testing.T) {
	for line := range strings.Lines(topicText(EventsPage)) {
		indented := strings.HasPrefix(line, topicIndent)
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); indented && n > 80 && strings.Count(strings.TrimSpace(line), " ") > 0 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}
