package asm

import (
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// emitted is one instruction: its bytes, what objdump -M intel calls them when
// they lie at testBase, and the call that emits them.
type emitted struct {
	bytes string
	text  string
	emit  func(c *Code)
}

const testBase = 0x1000

func allForms() map[string][]emitted {
	return map[string][]emitted{"mov": movForms(), "arith": arithForms(), "branch": branchForms(), "system": systemForms()}
}

func TestBytes(t *testing.T) {
	for name, forms := range allForms() {
		for _, f := range forms {
			c := New(testBase)
			f.emit(c)
			b, err := c.Bytes()
			if got := hex.EncodeToString(b); got != f.bytes || err != nil {
				t.Errorf("%s: %s: %s, %v; want %s", name, f.text, got, err, f.bytes)
			}
		}
	}
}

// objdump must read the bytes as what the method says it emits.
func TestObjdump(t *testing.T) {
	objdump := fixture.NeedTool(t, "objdump")
	var all []emitted
	for _, f := range allForms() {
		all = append(all, f...)
	}
	const room = 16
	for i, f := range all {
		b, err := hex.DecodeString(f.bytes)
		if err != nil || len(b) == 0 || len(b) > 15 {
			t.Fatalf("%s: bytes %q", f.text, f.bytes)
		}
		all[i].bytes = string(b)
	}
	// Every instruction is read as if it lay at testBase: one call of objdump
	// for all would shift what is relative, so those are corrected by offset.
	var blob []byte
	for _, f := range all {
		blob = append(blob, f.bytes...)
		blob = append(blob, []byte(strings.Repeat("\x90", room-len(f.bytes)))...)
	}
	path := filepath.Join(t.TempDir(), "blob")
	if err := os.WriteFile(path, blob, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(objdump, "-D", "-b", "binary", "-m", "i386:x86-64", "-M", "intel", "--no-show-raw-insn", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	got := map[uint64]string{}
	for _, line := range strings.Split(string(out), "\n") {
		var at uint64
		head, text, ok := strings.Cut(line, ":\t")
		if !ok {
			continue
		}
		if _, err := fmt.Sscanf(strings.TrimSpace(head), "%x", &at); err == nil {
			got[at] = strings.Join(strings.Fields(text), " ")
		}
	}
	target := regexp.MustCompile(`# 0x[0-9a-f]+$|^(j\w+|call) 0x[0-9a-f]+$`)
	number := regexp.MustCompile(`0x[0-9a-f]+$`)
	for i, f := range all {
		at := uint64(i * room)
		text := got[at]
		if target.MatchString(text) {
			text = number.ReplaceAllStringFunc(text, func(s string) string {
				var v uint64
				_, _ = fmt.Sscanf(s, "0x%x", &v)
				return fmt.Sprintf("%#x", v-at+testBase)
			})
		}
		if want := strings.Join(strings.Fields(f.text), " "); text != want {
			t.Errorf("% x is %q, want %q", f.bytes, text, want)
		}
		if _, ok := got[at+uint64(len(f.bytes))]; !ok {
			t.Errorf("%s: % x is not one instruction", f.text, f.bytes)
		}
	}
}
