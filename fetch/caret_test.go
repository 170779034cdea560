package fetch

import (
	"errors"
	"strings"
	"testing"
)

// caretCase is a definition with ^ before the column of its error.
type caretCase struct {
	def string
	id  string
}

// long is a name of n letters.
func long(n int) string { return strings.Repeat("a", n) }

// kernelCarets are the cases of the kernel's selftests (kprobe_syntax_errors.tc
// and uprobe_syntax_errors.tc in tools/testing/selftests/ftrace), with the ids
// of kernel/trace/trace_probe.h.
func kernelCarets() []caretCase {
	return []caretCase{
		{"p^100 vfs_read", "BAD_MAXACT_TYPE"},
		{"r^1a111 f", "BAD_MAXACT"},
		{"r^100000 f", "MAXACT_TOO_BIG"},
		{"p ^hoge-fuga", "BAD_PROBE_ADDR"},
		{"p ^hoge+1000-1000", "BAD_PROBE_ADDR"},
		{"r ^f+10", "BAD_RETPROBE"},
		{"w ^symbol", "BAD_ACCESS_FMT"},
		{"w ^a@symbol", "BAD_ACCESS_TYPE"},
		{"w w@^", "BAD_ACCESS_ADDR"},
		{"w w@jiffies^+offset", "BAD_ACCESS_ADDR"},
		{"w w@jiffies^+offset:8", "BAD_ACCESS_ADDR"},
		{"w w@m:jiffies^+offset:8", "BAD_ACCESS_ADDR"},
		{"w w@^0x12zz", "BAD_ACCESS_ADDR"},
		{"w w@jiffies:^100", "BAD_ACCESS_LEN"},
		{"w w@jiffies:^3", "BAD_ACCESS_LEN"},
		{"w w@jiffies ^$arg1", "BAD_VAR"},
		{"w w@jiffies ^$retval", "BAD_VAR"},
		{"w w@jiffies ^$params", "BAD_VAR"},
		{"w:^/bar w@x", "NO_GROUP_NAME"},
		{"p f ^$value", "BAD_VAR"},
		{"p:^/bar f", "NO_GROUP_NAME"},
		{"p:^" + long(65) + "/bar f", "GROUP_TOO_LONG"},
		{"p:^foo.1/bar f", "BAD_GROUP_NAME"},
		{"p:^ f", "NO_EVENT_NAME"},
		{"p:foo/^" + long(65) + " f", "EVENT_TOO_LONG"},
		{"p:foo/^bar.1 f", "BAD_EVENT_NAME"},
		{"p f ^$retval", "RETVAL_ON_PROBE"},
		{"p f ^$entrytime", "BAD_VAR"},
		{"p f ^$duration", "BAD_VAR"},
		{"r f ^$duration@entry", "BAD_VAR"},
		{"p f if ^$duration > 10ms", "BAD_VAR"},
		{"r f if $duration > ^10xs", "ILLEGAL_INTVAL"},
		{"r f t=$duration if t > ^-10ms", "ILLEGAL_INTVAL"},
		{"r f a=$arg1:u64 if a > ^10ms", "ILLEGAL_INTVAL"},
		{"r f if $duration2^ > 10ms", "FIELD_NOT_FOUND"},
		{"p f ^$stack10000", "BAD_STACK_NUM"},
		{"p f ^$none_var", "BAD_VAR"},
		{"p f ^%none_reg", "BAD_REG_NAME"},
		{"p f ^@12345678abcde", "BAD_MEM_ADDR"},
		{"p f arg1=\\^x", "BAD_IMM"},
		{"p f arg1=\\\"abcd^", "IMMSTR_NO_CLOSE"},
		{"p f ^+0@0)", "DEREF_NEED_BRACE"},
		{"p f ^+0ab1(@0)", "BAD_DEREF_OFFS"},
		{"p f +0(+0(@0^)", "DEREF_OPEN_BRACE"},
		{"p f +0(^$comm)", "COMM_CANT_DEREF"},
		{"p f ^&1", "BAD_FETCH_ARG"},
		{"p f +0(@11):u8[10^", "ARRAY_NO_CLOSE"},
		{"p f +0(@11):u8[10]^a", "BAD_ARRAY_SUFFIX"},
		{"p f +0(@11):u8[^10a]", "BAD_ARRAY_NUM"},
		{"p f +0(@11):u8[^256]", "ARRAY_TOO_BIG"},
		{"p f @11:^unknown_type", "BAD_TYPE"},
		{"p f $stack0:^string", "BAD_STRING"},
		{"p f @11:^b10@a/16", "BAD_BITFIELD"},
		{"p f ^" + long(257) + "=@11", "ARG_NAME_TOO_LONG"},
		{"p f ^=@11", "NO_ARG_NAME"},
		{"p f ^var.1=@11", "BAD_ARG_NAME"},
		{"p f var1=@11 ^var1=@12", "USED_ARG_NAME"},
		{"p f ^" + "@" + strings.Repeat("1", 256), "ARG_TOO_LONG"},
		{"p f arg1=^", "NO_ARG_BODY"},
		{"p f^%hoge", "BAD_ADDR_SUFFIX"},
		{"p ^f+10%return", "BAD_RETPROBE"},
		{"p /bin/sh:^10a", "BAD_UPROBE_OFFS"},
		{"p /bin/sh:10(^1a)", "BAD_REFCNT"},
		{"p /bin/sh:10(10^", "REFCNT_OPEN_BRACE"},
		{"p /bin/sh:10(10)^a", "BAD_REFCNT_SUFFIX"},
		{"p /bin/sh:10^%hoge", "BAD_ADDR_SUFFIX"},
		{"p /bin/sh:10(10)^%return", "BAD_REFCNT_SUFFIX"},
		{"p /bin/sh:10 ^@+ab", "BAD_FILE_OFFS"},
	}
}

// moreCarets are the rest of the errors, and the limits one past which a
// definition is refused.
func moreCarets() []caretCase {
	return []caretCase{
		{"p f ^$arg0", "BAD_ARG_NUM"},
		{"p:ev work a=^$argX", "BAD_ARG_NUM"},
		{"p f ^$arg2049", "ARGIDX_2BIG"},
		{"p f ^$farg9", "ARGIDX_2BIG"},
		{"p f ^$stackp", "BAD_VAR"},
		{"p f ^$stack0+10", "BAD_VAR"},
		{"p f ^$current", "BAD_VAR"},
		{"p f +0(^$retval)", "RETVAL_ON_PROBE"},
		{"p f *^$retval", "RETVAL_ON_PROBE"},
		{"p f a=(conn*)^$retval", "RETVAL_ON_PROBE"},
		{"p f a=^$retval->len", "RETVAL_ON_PROBE"},
		{"p f ^this_cpu_ptr(@1)", "NOSUP_PERCPU"},
		{"p f ^this_cpu_read(@1)", "NOSUP_PERCPU"},
		{"p f ^%xmm16", "BAD_REG_NAME"},
		{"p f ^%eax", "BAD_REG_NAME"},
		{"p f ^%", "BAD_REG_NAME"},
		{"p f ^@", "BAD_MEM_ADDR"},
		{"p f skb^-len", "BAD_HYPHEN"},
		{"p f a=skb->len^-", "BAD_HYPHEN"},
		{"p f +0(skb^-x):u8", "BAD_HYPHEN"},
		{"p f ^@S*10", "BAD_MEM_ADDR"},
		{"p f ^@S/10", "BAD_MEM_ADDR"},
		{"p f ^@S%10", "BAD_MEM_ADDR"},
		{"p f ^@S&10", "BAD_MEM_ADDR"},
		{"p f ^@S|10", "BAD_MEM_ADDR"},
		{"p f ^+(%di)", "BAD_DEREF_OFFS"},
		{"p f ^-(%di)", "BAD_DEREF_OFFS"},
		{"p f ^--1(%di)", "BAD_DEREF_OFFS"},
		{"p f ^(%di)", "BAD_FETCH_ARG"},
		{"p f ^(%di+10)", "BAD_FETCH_ARG"},
		{"p f +10(^$comm)", "COMM_CANT_DEREF"},
		{"p f +0(^\\\"a\")", "COMM_CANT_DEREF"},
		{"p f +0(%di)^+10", "BAD_FETCH_ARG"},
		{"p f %di:^:x16", "BAD_TYPE"},
		{"p f %di:^y16", "BAD_TYPE"},
		{"p f %di:^x24", "BAD_TYPE"},
		{"p f %di:^f16", "BAD_TYPE"},
		{"p f %di:^", "BAD_TYPE"},
		{"p f %di:^string", "BAD_STRING"},
		{"p f %di:^x8[4]", "BAD_STRING"},
		{"p f $stack:^string", "BAD_STRING"},
		{"p f $stack1:^x8[8]", "BAD_STRING"},
		{"p f $comm:^x64", "NEED_STRING_TYPE"},
		{"p f $comm:^string[2]", "NEED_STRING_TYPE"},
		{"p f a=\\\"x\":^u8", "NEED_STRING_TYPE"},
		{"p f a=$comm:^symstr", "NEED_STRING_TYPE"},
		{"p f +0(%di):^symstr[2]", "BAD_STRING"},
		{"p f +0(%di):^%pd[2]", "BAD_STRING"},
		{"p f %di:^b0@0/8", "BAD_BITFIELD"},
		{"p f %di:^b5@4/8", "BAD_BITFIELD"},
		{"p f %di:^b65@0/64", "BAD_BITFIELD"},
		{"p f %di:^b5/8", "BAD_BITFIELD"},
		{"p f %di:^b5@0", "BAD_TYPE"},
		{"p f +0(%di):x8[^0]", "BAD_ARRAY_NUM"},
		{"p f +0(%di):x8[^65]", "ARRAY_TOO_BIG"},
		{"p f +0(%di):x8[^]", "BAD_ARRAY_NUM"},
		{"p f +0(%di):x8[^4294967295]", "ARRAY_TOO_BIG"},
		{"p f +0(%di):x8[^4294967296]", "BAD_ARRAY_NUM"},
		{"p f ^common_pid=%di", "USED_ARG_NAME"},
		{"p f ^__probe_ip=%di", "USED_ARG_NAME"},
		{"p f a=^$arg*", "BAD_VAR_ARGS"},
		{"p f ^$arg*:u8", "BAD_VAR_ARGS"},
		{"p f +0(%si):^bytes", "BAD_TYPE"},
		{"p f +0(%si):^bytesx[1]", "BAD_TYPE"},
		{"p f %si:^bytes[%dx]", "BAD_STRING"},
		{"p f +0(%si):bytes[%dx^", "ARRAY_NO_CLOSE"},
		{"p f +0(%si):bytes[%dx]^[2]", "BAD_ARRAY_SUFFIX"},
		{"p f +0(%si):bytes[^]", "BAD_ARRAY_NUM"},
		{"p f +0(%si):bytes[^0]", "BAD_ARRAY_NUM"},
		{"p f +0(%si):bytes[^4097]", "ARRAY_TOO_BIG"},
		{"p f +0(%si):bytes[^%nope]", "BAD_REG_NAME"},
		{"p f +0(%si):bytes[^$retval]", "RETVAL_ON_PROBE"},
		{"p f a=+0(%si):bytes[%dx:^f64]", "BAD_TYPE"},
		{"p f +0(%si):bytes[%dx:^y]", "BAD_TYPE"},
		{"p f +0(%si):bytes[^$comm]", "BAD_TYPE"},
		{"p f +0(%si):bytes[^$arg*]", "BAD_VAR_ARGS"},
		{"p f +0(%si):bytes[+0(%dx)^2]", "BAD_FETCH_ARG"},
		{"p f +0(^$arg*)", "BAD_VAR_ARGS"},
		{"p f $arg* ^$arg*", "DOUBLE_ARGS"},
		{"p f ^" + long(33) + "=%di", "ARG_NAME_TOO_LONG"},
		{"p f a=^" + "@" + strings.Repeat("0", 255), "ARG_TOO_LONG"},
		{"p:^" + long(64) + "/bar f", "GROUP_TOO_LONG"},
		{"p:^" + long(64) + " f", "EVENT_TOO_LONG"},
		{"p:^1a f", "BAD_EVENT_NAME"},
		{"r^4097 f", "MAXACT_TOO_BIG"},
		{"r^99999999999 f", "BAD_MAXACT"},
		{"j^10 f", "BAD_MAXACT_TYPE"},
		{"j ^f+4", "NOFENTRY_ARGS"},
		{"j f^%return", "BAD_ADDR_SUFFIX"},
		{"j f ^%di", "BAD_FETCH_ARG"},
		{"p ^f-4", "BAD_PROBE_ADDR"},
		{"p ^f+", "BAD_PROBE_ADDR"},
		{"p ^f-", "BAD_PROBE_ADDR"},
		{"p ^f+4x", "BAD_PROBE_ADDR"},
		{"p ^0x12zz", "BAD_PROBE_ADDR"},
		{"p ^libc:", "BAD_PROBE_ADDR"},
		{"p ^:f", "BAD_PROBE_ADDR"},
		{"p:ev ^", "NO_PLACE"},
		{"r ^", "NO_PLACE"},
		{"^", "NO_PLACE"},
		{"^-", "BAD_PROBE_TYPE"},
		{"-:^", "NO_EVENT_NAME"},
		{"-:grp/^", "NO_EVENT_NAME"},
		{"-:^a-b", "BAD_EVENT_NAME"},
		{"p f " + nested(8, "^+0(%di)"), "TOO_MANY_NESTED"},
		{"p f ^" + strings.TrimSpace(strings.Repeat("%di ", 129)), "TOO_MANY_ARGS"},
		{"p f " + wide(6) + " ^g=+0(%di):u8", "EVENT_TOO_BIG"},
		{"p f a=%di if ^", "NO_EP_FILTER"},
	}
}

// nested wraps s in n dereferences.
func nested(n int, s string) string {
	return strings.Repeat("+0(", n) + s + strings.Repeat(")", n)
}

// wide lists n arguments of 512 bytes each, the limit being 3072.
func wide(n int) string {
	var s []string
	for i := range n {
		s = append(s, string(rune('a'+i))+"=+0(%di):x64[64]")
	}
	return strings.Join(s, " ")
}

func TestCarets(t *testing.T) {
	for _, c := range append(kernelCarets(), moreCarets()...) {
		t.Run(c.id+" "+short(c.def), func(t *testing.T) { checkCaret(t, c) })
	}
}

func short(s string) string {
	if len(s) > 40 {
		return s[:40]
	}
	return s
}

// checkCaret parses a case and compares the error's id and column.
func checkCaret(t *testing.T, c caretCase) {
	t.Helper()
	want := strings.IndexByte(c.def, '^')
	text := c.def[:want] + c.def[want+1:]
	_, err := Parse(text)
	var e *SyntaxError
	if !errors.As(err, &e) {
		t.Fatalf("Parse(%q) = %v, want %s", text, err, c.id)
	}
	if e.Code.ID() != c.id || e.Col != want {
		t.Errorf("Parse(%q):\n%s%s at %d, want %s at %d", text, e.Caret(), e.Code, e.Col, c.id, want)
	}
	if !errors.Is(err, e.Code.Errno()) {
		t.Errorf("%v is not its errno %v", err, e.Code.Errno())
	}
}

func TestCaretText(t *testing.T) {
	_, err := Parse("p:ev   work\ta=$argX")
	var e *SyntaxError
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	if e.Error() != "Invalid argument number" {
		t.Errorf("Error() = %q", e.Error())
	}
	want := "  p:ev work a=$argX\n              ^\n"
	if e.Caret() != want {
		t.Errorf("Caret() =\n%swant\n%s", e.Caret(), want)
	}
	// The caret counts characters, not bytes.
	_, err = Parse("p f\u00e4\u00e4 \u20ac=%di")
	if !errors.As(err, &e) || !strings.HasSuffix(e.Caret(), "\n        ^\n") {
		t.Errorf("Caret() =\n%s", e.Caret())
	}
}

// TestCaretOfNoText: a line of a file that isn't text is shown in part, with the
// caret where it is; a long definition is shown whole.
func TestCaretOfNoText(t *testing.T) {
	elf := "\x7fELF\x02\x01" + strings.Repeat("\x00\xff", 500) + " =1"
	long := "p f " + strings.Repeat("a=%di ", 100) + "=1"
	for _, c := range []struct {
		input string
		col   int
		cut   bool
	}{{elf, 0, true}, {elf, 500, true}, {elf, len(elf), true}, {elf, len(elf) + 1, true}, {long, len(long) - 2, false}} {
		e := newError(NoArgName, c.input, c.col, "")
		lines := strings.Split(e.Caret(), "\n")
		if len(lines) != 3 || strings.TrimLeft(lines[1], " ") != "^" || len(lines[1]) > len(lines[0])+2 {
			t.Fatalf("%q", lines)
		}
		if cut := len(lines[0]) < 80; cut != c.cut || c.cut && len(lines[1]) > 80 {
			t.Errorf("column %d: %q", c.col, lines)
		}
		if at := lines[1]; c.col == 0 && at != "  ^" || !c.cut && at != "  "+strings.Repeat(" ", c.col)+"^" {
			t.Errorf("column %d: %q", c.col, at)
		}
	}
}

func TestEveryCodeHasText(t *testing.T) {
	seen := map[string]Code{}
	for c := Code(1); c < codeCount; c++ {
		if c.Text() == "" || c.ID() == "" || c.Errno() == 0 {
			t.Errorf("code %d has no row", c)
		}
		if o, dup := seen[c.ID()]; dup {
			t.Errorf("%s is both %d and %d", c.ID(), o, c)
		}
		seen[c.ID()] = c
	}
	if Code(0).ID() != "UNKNOWN" || Code(255).Text() != "Unknown error" {
		t.Error("an unknown code has a known text")
	}
}

// TestCaretBehindControls has blanks for tabs, and the caret below what is shown.
func TestCaretBehindControls(t *testing.T) {
	_, err := Parse("p:ev\twork\ta=+0(%di):string\tb=$argX")
	syntax, ok := err.(*SyntaxError) //nolint:errorlint // Parse returns it as it is
	if !ok {
		t.Fatalf("%T: %v", err, err)
	}
	want := "  p:ev work a=+0(%di):string b=$argX\n                               ^\n"
	if got := syntax.Caret(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := (&SyntaxError{Input: "p \x1bx y", Col: 4}).Caret(); got != "  p \\x1bx y\n         ^\n" {
		t.Errorf("got\n%s", got)
	}
}
