package fetch

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestParseFile(t *testing.T) {
	text := `# definitions
p:a work x=%di

   # indented
  r:b work $retval if arg1 > 3
p:myprobe,do_sys_open,dfd=%ax,filename=%dx,mode=+4($stack)
p:c,f;r10:d,g,$retval;-:a
libc:openat
p,h
`
	defs, err := ParseFile(strings.NewReader(text), "defs")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range defs {
		got = append(got, d.String())
	}
	want := []string{
		"p:kprobes/a work x=%di",
		"r:kprobes/b work arg1=$retval if arg1 > 3",
		"p:kprobes/myprobe do_sys_open dfd=%ax filename=%dx mode=+4($stack)",
		"p:kprobes/c f", "r10:kprobes/d g arg1=$retval", "-:a",
		"p:kprobes/p_libc_openat_0 libc:openat",
		"p:kprobes/p_h_0 h",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestByteOrderMark: what some editors write before the first line is no part of it.
func TestByteOrderMark(t *testing.T) {
	defs, err := ParseFile(strings.NewReader("\ufeffp:a work\r\np:b work\r\n"), "defs")
	if err != nil || len(defs) != 2 || defs[0].String() != "p:kprobes/a work" {
		t.Errorf("%v, %v", defs, err)
	}
	if defs, err = ParseFile(strings.NewReader("p:a work\n\ufeffp:b work\n"), "defs"); err == nil && defs[1].Event == "b" {
		t.Error("a byte order mark amid the file is skipped")
	}
}

// TestBlankLines: an error's line is counted past blank ones, also past those that are read in
// several pieces.
func TestBlankLines(t *testing.T) {
	for _, n := range []int{1, 4095, 4096, 4097, 300_000} {
		blank := strings.Repeat("\n", n)
		defs, err := ParseFile(strings.NewReader(blank+"p:a work\n"+blank+"p:b work"+blank), "defs")
		if err != nil || len(defs) != 2 {
			t.Errorf("%d: %v, %v", n, defs, err)
		}
		_, err = ParseFile(strings.NewReader(blank+"p:a work\n"+blank+"p f $argX\n"), "defs")
		var at *FileError
		if !errors.As(err, &at) || at.Line != 2*n+2 {
			t.Errorf("%d: %v", n, err)
		}
	}
}

func TestParseFileErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		r    io.Reader
		want string
	}{
		{"syntax", strings.NewReader("p f\n\n#\np f $argX\n"), "defs:4: Invalid argument number"},
		{"boot form", strings.NewReader("p,f;p,f,$bad\n"), "defs:1: Invalid $-variable specified"},
		{"reader", iotest.ErrReader(errNoName), "defs:1: read definitions: no such name"},
		{"long line", strings.NewReader("p f\np " + strings.Repeat("x", maxLine)), "defs:2: read definitions: the line is longer than 131072 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			defs, err := ParseFile(c.r, "defs")
			var fe *FileError
			if !errors.As(err, &fe) || err.Error() != c.want || defs != nil {
				t.Errorf("ParseFile = %v, %v; want %s", defs, err, c.want)
			}
		})
	}
}

func TestParseBoot(t *testing.T) {
	defs, err := ParseBoot(`p:a,ns::f(int, char),x=%di,if,cpu & CPUS{0,2};;p:b,"g(a, b)",s=\"x,y;z"`)
	if err != nil {
		t.Fatal(err)
	}
	if len(defs) != 2 {
		t.Fatalf("%d definitions", len(defs))
	}
	if got := defs[0].String(); got != "p:kprobes/a \"ns::f(int, char)\" x=%di if cpu & CPUS{0,2}" {
		t.Error(got)
	}
	if got := defs[1].String(); got != `p:kprobes/b "g(a, b)" s=\"x,y;z"` {
		t.Error(got)
	}
}
