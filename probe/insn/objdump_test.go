package insn

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// line is one instruction as objdump prints it.
type line struct {
	at   uint64
	code []byte
	text string
}

// objdump calls each for every line of the file's .text, or of all sections
// if section is "".
func objdump(t testing.TB, path, section string, each func(line)) {
	t.Helper()
	args := []string{"-d", "-z", "-w", "-M", "intel", "--insn-width=16"}
	if section != "" {
		args = append(args, "-j", section)
	}
	cmd := exec.Command(fixture.NeedTool(t, "objdump"), append(args, path)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReaderSize(out, 1<<20)
	for {
		b, err := r.ReadSlice('\n')
		if l, ok := parseLine(b); ok {
			each(l)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("objdump %s: %v", path, err)
	}
}

func parseLine(b []byte) (line, bool) {
	addr, rest, ok := bytes.Cut(b, []byte(":\t"))
	if !ok {
		return line{}, false
	}
	at, err := strconv.ParseUint(string(bytes.TrimSpace(addr)), 16, 64)
	if err != nil {
		return line{}, false
	}
	hexes, text, _ := bytes.Cut(rest, []byte("\t"))
	code := make([]byte, 0, 16)
	for len(hexes) >= 2 && hexes[0] != ' ' {
		var c [1]byte
		if _, err := hex.Decode(c[:], hexes[:2]); err != nil {
			return line{}, false
		}
		code = append(code, c[0])
		hexes = bytes.TrimPrefix(hexes[2:], []byte(" "))
	}
	return line{at, code, string(bytes.TrimSpace(text))}, true
}

// convention names why a difference of length is one of writing, not of
// reading; "" is a real difference. code goes on behind objdump's instruction.
func convention(l line, i Inst, err error, code []byte) string {
	switch {
	case l.text == "", strings.HasPrefix(l.text, ".byte"), strings.Contains(l.text, "(bad)"):
		return "bytes that are data"
	case err != nil && (bytes.Contains(code[:3], []byte{0x8c}) || bytes.Contains(code[:3], []byte{0x8e})) &&
		(strings.Contains(l.text, "?") || strings.Contains(l.text, " cs,")):
		return "move of a segment register that doesn't exist, or to cs"
	case len(l.code) > 1 && l.code[0] == 0x9b && i.Len == 1:
		return "fwait is an instruction of its own"
	case strings.HasPrefix(l.text, "rex") && len(l.code) == 1:
		return "REX that another prefix makes void, alone"
	case i.Flags.Has(Op16Branch):
		return "near branch with 66, Intel's length"
	case err != nil && strings.HasPrefix(l.text, "rex") && i.Encoding != Legacy:
		return "REX before VEX, which isn't allowed"
	case onlyPrefixes(l.code):
		return "prefixes alone"
	case err != nil && int(i.Len) == len(l.code) && i.Prefixes&PrefixLock != 0:
		return "lock where it isn't allowed"
	case errors.Is(err, ErrUndefined) && bytes.IndexByte(code[:max(len(l.code)-1, 1)], 0xf0) >= 0 && i.Prefixes&PrefixLock != 0:
		return "lock where it isn't allowed"
	}
	return ""
}

func onlyPrefixes(code []byte) bool {
	for _, b := range code {
		if prefixOf[b] == 0 {
			return false
		}
	}
	return true
}

// compare checks every instruction of a file against objdump.
func compare(t *testing.T, path string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := f.Section(".text")
	if s == nil {
		t.Fatalf("%s has no .text", path)
	}
	text, err := s.Data()
	if err != nil {
		t.Fatal(err)
	}
	n, bad, known := 0, 0, map[string]int{}
	objdump(t, path, ".text", func(l line) {
		n++
		off := l.at - s.Addr
		if off >= uint64(len(text)) {
			t.Errorf("%s: %#x is not in .text", path, l.at)
			return
		}
		i, err := Decode(text[off:])
		if err == nil && int(i.Len) == len(l.code) {
			if what := disagree(i, l, text[off:]); what != "" {
				bad++
				if bad < 40 {
					t.Errorf("%s: %#x % x %q: %s", path, l.at, l.code, l.text, what)
				}
			}
			return
		}
		if why := convention(l, i, err, text[off:]); why != "" {
			known[why]++
			return
		}
		bad++
		if bad < 40 {
			t.Errorf("%s: %#x: % x %q is %d bytes, %v", path, l.at, l.code, l.text, i.Len, err)
		}
	})
	if n < 100 {
		t.Errorf("%s: objdump printed only %d instructions", path, n)
	}
	t.Logf("%s: %d instructions, %d different, by convention %v", path, n, bad, known)
}

// disagree compares what else objdump prints: the kind of branch, its target,
// and the address of a RIP-relative operand.
func disagree(i Inst, l line, code []byte) string {
	if strings.Contains(l.text, "(bad)") {
		return ""
	}
	if strings.Contains(l.text, "[rip") != i.Flags.Has(RIPRel) && !strings.Contains(l.text, "[eip") {
		return "RIPRel is wrong"
	}
	if t, ok := i.RIPTarget(l.at, code); ok {
		_, c, found := strings.Cut(l.text, "# ")
		c, _, _ = strings.Cut(c, " ")
		want, err := strconv.ParseUint(strings.TrimPrefix(c, "0x"), 16, 64)
		if i.Prefixes&PrefixAddrSize != 0 {
			want = uint64(uint32(want)) // objdump goes on in 64 bits
		}
		if !found || err != nil || want != t {
			return "the operand means " + strconv.FormatUint(t, 16)
		}
	}
	name, rest := mnemonicOf(l.text)
	direct := rest != "" && rest[0] >= '0' && rest[0] <= '9' || len(rest) > 0 && rest[0] >= 'a' && rest[0] <= 'f' && isHex(rest)
	branch := (name[0] == 'j' || name == "call" || strings.HasPrefix(name, "loop") || name == "xbegin") && direct
	if branch != i.Flags.Has(RelBranch) {
		return "RelBranch is wrong"
	}
	if t, ok := i.Target(l.at, code); ok {
		c, _, _ := strings.Cut(rest, " ")
		want, err := strconv.ParseUint(strings.TrimPrefix(c, "0x"), 16, 64)
		if err != nil || want != t {
			return "the target is " + strconv.FormatUint(t, 16)
		}
	}
	for flag, names := range map[Flags]string{
		Ret: "ret", IndirectJmp: "jmp", IndirectCall: "call", Syscall: "syscall sysenter", Halt: "hlt",
	} {
		want := strings.Contains(" "+names+" ", " "+name+" ") && !direct
		if flag == Ret {
			want = name == "ret" || name == "retw"
		}
		if i.Flags.Has(FarBranch) || strings.Contains(l.text, "FWORD") {
			want = false
		}
		if i.Flags.Has(flag) != want {
			return "a flag is wrong: " + names
		}
	}
	return ""
}

// mnemonicOf splits the text behind prefixes.
func mnemonicOf(text string) (name, rest string) {
	for {
		name, rest, _ = strings.Cut(text, " ")
		rest = strings.TrimSpace(rest)
		switch name {
		case "bnd", "notrack", "repz", "repnz", "rep", "lock", "data16", "addr32", "cs", "ds", "es", "ss", "fs", "gs", "xacquire", "xrelease":
		default:
			if !strings.HasPrefix(name, "rex") {
				name, _, _ = strings.Cut(name, ",") // branch hints
				return name, rest
			}
		}
		if rest == "" {
			return name, rest
		}
		text = rest
	}
}

func isHex(s string) bool {
	s, _, _ = strings.Cut(s, " ")
	_, err := strconv.ParseUint(s, 16, 64)
	return err == nil && len(s) > 2
}

// libraries are compared always; programs only under KPROBE_TEST_FULL.
var (
	libraries = []string{
		"/lib/x86_64-linux-gnu/libc.so.6 /usr/lib/libc.so.6 /lib64/libc.so.6",
		"/lib/x86_64-linux-gnu/libm.so.6 /usr/lib/libm.so.6 /lib64/libm.so.6",
		"/lib64/ld-linux-x86-64.so.2",
		"/usr/lib/x86_64-linux-gnu/libstdc++.so.6 /usr/lib/libstdc++.so.6 /usr/lib64/libstdc++.so.6",
	}
	programs = []string{
		"/usr/lib/x86_64-linux-gnu/libcrypto.so.3 /usr/lib/libcrypto.so.3 /usr/lib64/libcrypto.so.3",
		"/usr/bin/python3.11 /usr/bin/python3", "/usr/bin/node", "/usr/bin/gdb",
		"/usr/lib/x86_64-linux-gnu/libgcrypt.so.20 /usr/lib64/libgcrypt.so.20",
		"/usr/lib/x86_64-linux-gnu/libgnutls.so.30 /usr/lib64/libgnutls.so.30",
	}
)

func TestObjdumpLibraries(t *testing.T) {
	files := libraries
	if testing.Short() {
		files = files[1:2]
	}
	for _, names := range files {
		compare(t, fixture.NeedFile(t, strings.Fields(names)...))
	}
}

func TestObjdumpPrograms(t *testing.T) {
	if os.Getenv("KPROBE_TEST_FULL") == "" {
		t.Skip("set KPROBE_TEST_FULL=1 to compare every instruction of large programs")
	}
	for _, names := range programs {
		t.Run(strings.Fields(names)[0], func(t *testing.T) {
			compare(t, fixture.NeedFile(t, strings.Fields(names)...))
		})
	}
}
