package main

import (
	"bytes"
	"go/format"
	"os"
	"strings"
	"testing"
)

// TestTablesAreFresh: tables.go is what opcodes.table says. To repair it:
// go generate ./probe/insn/...
func TestTablesAreFresh(t *testing.T) {
	text, err := os.ReadFile("../opcodes.table")
	if err != nil {
		t.Fatal(err)
	}
	tab, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../tables.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, tab.source()) {
		t.Error("tables.go is stale: run go generate ./probe/insn/...")
	}
	if f, err := format.Source(have); err != nil || !bytes.Equal(f, have) {
		t.Errorf("tables.go is not as gofmt has it: %v", err)
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"before the first map", "00 E", "before the first map"},
		{"unknown token", "[legacy]\n00 Q", "not known"},
		{"unknown access", "[legacy]\n00 E+=", "access"},
		{"unknown register", "[legacy]\n00 <r8", "register"},
		{"bad opcode", "[legacy]\nzz E", "number"},
		{"bad range", "[legacy]\n00-zz E", "range"},
		{"bad group", "[legacy]\nzz/0 E", "opcode"},
		{"group after a row", "[legacy]\n00 E\n00/1 E", "after a row"},
		{"memory form by byte", "[legacy]\n00!05 E", "no register form"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := parse(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
