package fetch

import (
	"strings"
	"testing"
)

// TestFilterCarets are the errors of filters over a fixed set of fields; the
// texts were compared with Linux 6.18. Its columns inside predicates are one
// more: it points behind the culprit's first character.
func TestFilterCarets(t *testing.T) {
	const def = "p f n=%di:u32 s=+0(%si):string i=%dx:s64 d=%xmm0:f64 a=+0(%di):u8[2] c=+0(%di):char[8] if "
	for _, c := range []caretCase{
		{"nope^ == 1", "FIELD_NOT_FOUND"},
		{"n == 1 && nope^ == 1", "FIELD_NOT_FOUND"},
		{"^== 1", "FIELD_NOT_FOUND"},
		{"n ^1", "INVALID_OP"},
		{"n ^= 1", "INVALID_OP"},
		{"n^", "INVALID_OP"},
		{"s == ^1", "EXPECT_STRING"},
		{"s < ^5", "EXPECT_STRING"},
		{"comm == ^5", "EXPECT_STRING"},
		{`n == ^"x"`, "EXPECT_DIGIT"},
		{`s < ^"x"`, "ILLEGAL_FIELD_OP"},
		{`s & ^'x'`, "ILLEGAL_FIELD_OP"},
		{"n ~ ^1", "ILLEGAL_FIELD_OP"},
		{"d & ^1", "ILLEGAL_FIELD_OP"},
		{"a^ == 1", "ILLEGAL_FIELD_OP"},
		{`a^ == "x"`, "ILLEGAL_FIELD_OP"},
		{"c == ^1", "EXPECT_STRING"},
		{`c < ^"x"`, "ILLEGAL_FIELD_OP"},
		{"n == ^12z", "ILLEGAL_INTVAL"},
		{"n == ^-1", "ILLEGAL_INTVAL"},
		{"n == ^0x", "ILLEGAL_INTVAL"},
		{"d == ^1x", "ILLEGAL_INTVAL"},
		{"i == ^9223372036854775808", "ILLEGAL_INTVAL"},
		{"n == ^n", "INVALID_VALUE"},
		{"common_pid == ^child_pid", "INVALID_VALUE"},
		{"n ==^", "INVALID_VALUE"},
		{"n &^& n == 1", "INVALID_VALUE"},
		{"^((n == 1)", "TOO_MANY_OPEN"},
		{"(n == 1) && ^(s == \"(\"", "TOO_MANY_OPEN"},
		{"^(n == 1", "TOO_MANY_OPEN"},
		{"n == 1^)", "TOO_MANY_CLOSE"},
		{"s == ^\"x", "MISSING_QUOTE"},
		{"n == 1 ^n == 2", "TOO_MANY_PREDS"},
		{"n == 1 ^& n == 2", "TOO_MANY_PREDS"},
		{"n == 1 &&^", "NO_FILTER"},
		{"!^", "NO_FILTER"},
		{"(^)", "FIELD_NOT_FOUND"},
		{"cpu & CPUS^", "MISSING_BRACE_OPEN"},
		{"cpu & CPUS{1^", "MISSING_BRACE_CLOSE"},
		{"cpu & CPUS{^x}", "INVALID_CPULIST"},
		{"cpu & CPUS{^3-1}", "INVALID_CPULIST"},
		{"cpu & CPUS{^}", "INVALID_CPULIST"},
		{"cpu & CPUS{^99999}", "INVALID_CPULIST"},
		{"cpu < ^CPUS{1}", "ILLEGAL_FIELD_OP"},
		{"s == ^CPUS{1}", "ILLEGAL_FIELD_OP"},
		{"n.function == ^work", "ILLEGAL_FIELD_OP"},
		{"i.function < ^work", "INVALID_OP"},
		{`s == "` + long(256) + `^"`, "OPERAND_TOO_LONG"},
		{strings.Repeat("(", 65) + "^n == 1" + strings.Repeat(")", 65), "TOO_MANY_PREDS"},
		{strings.Repeat("n == 1 && ", 256) + "^n == 1", "TOO_MANY_PREDS"},
	} {
		t.Run(short(c.def), func(t *testing.T) {
			checkCaret(t, caretCase{def + c.def, c.id})
		})
	}
}

func TestFilters(t *testing.T) {
	const args = "n=%di:u32 neg=%ax:s64 w=%ax s=+0(+0(%di)):string f=%xmm0:f64 g=%xmm1:f32 ip=%si:symbol bad=@0:u8 badtext=@0:string c=+0(+0(%di)):char l=+0(+0(%di)):char[4] h=+0(+0(%di)):char[16] badl=@0:char[4]"
	for _, c := range []struct {
		filter string
		want   bool
	}{
		{"n == 0x2000", true},
		{"n == 8192 && n != 8193", true},
		{"n == 020000", true},
		{"n==1||n==8192", true},
		{"n > 8191 && n < 8193 && n >= 8192 && n <= 8192", true},
		{"n & 0x2000", true},
		{"n & 0x1fff", false},
		{"neg < 0 && neg == -2", true},
		{"w > 5", true},
		{"w == 0xfffffffffffffffe", true},
		{"s == \"hello\"", true},
		{"s == hello", true},
		{"s == 'hell'", false},
		{"s != \"hello\"", false},
		{`s ~ "h*o" && s ~ "hel?o" && s ~ "[g-i]ello" && s ~ "*"`, true},
		{`s ~ "ell"`, false},
		{`s ~ "*ell*"`, true},
		{"comm == redis && COMM ~ \"re*\"", true},
		{"pid == 41 && tid == 43 && common_pid == 43 && common_tgid == 41", true},
		{"cpu == 1 && CPU < 2 && common_cpu != 0", true},
		{"cpu & CPUS{0-1,5} && cpu == CPUS{1} && cpu != CPUS{1,2} && !(cpu & CPUS{0,2-200})", true},
		{"cpu == CPUS{0-1}", false},
		{"__probe_ip == 0x1004", true},
		{"f == 1.5 && f > 1 && f < 2e0 && f != -1.5 && f >= -3", true},
		{"g == 2.5", true},
		{"ip.function == work && ip.function != 0x1011 && ip.function == 0x1010", true},
		{"ip.function != work", false},
		{"c == 104", true},
		{`l == "hell" && h == "hello" && h ~ "he*o" && l != "hello" && h ~ "[a-h]*"`, true},
		{`h == "hell"`, false},
		{`badl != "x"`, false},
		{`badl ~ "*"`, false},
		{"!(n == 1) && !!(n == 8192)", true},
		{"n == 1 && n == 2 || n == 8192", true},
		{"n == 8192 || n == 1 && n == 2", true},
		{"(n == 8192 || n == 1) && n == 2", false},
		{"!(n == 8192 && (neg == 1 || s == \"x\"))", true},
		{"!(n == 8192 && !(neg == 1 || s == \"x\"))", false},
		// A fault is neither equal nor unequal.
		{"bad == 0", false},
		{"bad != 0", false},
		{"!(bad == 0)", true},
		{"badtext != \"x\"", false},
		{"badtext ~ \"*\"", false},
	} {
		t.Run(c.filter, func(t *testing.T) {
			_, pass := run(t, "p work "+args+" if "+c.filter, testEnv(), testContext())
			if pass != c.want {
				t.Errorf("passed: %v, want %v", pass, c.want)
			}
		})
	}
}

// TestFirstFault: the fault of the value that has the first bit is seen, too.
func TestFirstFault(t *testing.T) {
	for def, want := range map[string]bool{
		"p work bad=@0:u8 if bad == 0":                    false,
		"p work bad=@0:u8 good=@0x2000 if bad == 0":       false,
		"p work bad=@0:u8 good=@0x2000 if good != 0":      true,
		"p work good=@0x2000 bad=@0:u8 if good != 0":      true,
		"p work good=@0x2000 bad=@0:u8 if bad == 0":       false,
		"p work bad=@0:symbol if bad.function != work":    false,
		"p work bad=@0:symbol if !(bad.function != work)": true,
	} {
		if _, pass := run(t, def, testEnv(), testContext()); pass != want {
			t.Errorf("%s: %v", def, pass)
		}
	}
}

// TestFilterTables compares every filter of three predicates and up to four
// operators with Go's own operators.
func TestFilterTables(t *testing.T) {
	shapes := []struct {
		text string
		eval func(a, b, c bool) bool
	}{
		{"A && B && C", func(a, b, c bool) bool { return a && b && c }},
		{"A || B || C", func(a, b, c bool) bool { return a || b || c }},
		{"A && B || C", func(a, b, c bool) bool { return a && b || c }},
		{"A || B && C", func(a, b, c bool) bool { return a || b && c }},
		{"(A || B) && C", func(a, b, c bool) bool { return (a || b) && c }},
		{"A && (B || C)", func(a, b, c bool) bool { return a && (b || c) }},
		{"!(A && B) || C", func(a, b, c bool) bool { return !(a && b) || c }},
		{"!(A || !(B && !C))", func(a, b, c bool) bool { return !(a || !(b && !c)) }},
		{"!A && !(B || C) || A && (B && !(C))", func(a, b, c bool) bool { return !a && !(b || c) || a && (b && !c) }},
	}
	for _, s := range shapes {
		text := strings.NewReplacer("A", "a == 1", "B", "b == 1", "C", "c == 1").Replace(s.text)
		p, err := mustParse(t, "p f a=%di b=%si c=%dx if "+text).Compile(nil)
		if err != nil {
			t.Fatal(err)
		}
		for bits := range uint64(8) {
			regs := &Regs{}
			regs.GPR[DI], regs.GPR[SI], regs.GPR[DX] = bits&1, bits>>1&1, bits>>2
			_, pass := p.Eval(&Context{Regs: regs}, nil)
			if want := s.eval(bits&1 != 0, bits&2 != 0, bits&4 != 0); pass != want {
				t.Errorf("%s with %03b: %v, want %v", s.text, bits, pass, want)
			}
		}
	}
}

func TestLateFilter(t *testing.T) {
	env := testEnv()
	env.vars = map[string]Variable{"len": {Chain: Chain{Reg: DI}, Type: Type{Base: Signed, Size: 4}}}
	if got, pass := run(t, "p work len if len == 8192", env, testContext()); !pass || got != "len=8192" {
		t.Errorf("%s, %v", got, pass)
	}
	d := mustParse(t, "p work len if nope == 1")
	_, err := d.Compile(env)
	if !isCode(err, FiltFieldNotFound) {
		t.Errorf("Compile = %v", err)
	}
	d = mustParse(t, "p work x=%di if x.function == nope")
	if _, err = d.Compile(env); !isCode(err, FiltNoFunction) {
		t.Errorf("Compile = %v", err)
	}
}
