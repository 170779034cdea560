package fetch

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestCompileErrors are the errors that only a process shows. ^ marks the
// column.
func TestCompileErrors(t *testing.T) {
	inside := testEnv()
	inside.inside = true
	noDebug := testEnv()
	noDebug.noDebug = true
	for _, c := range []struct {
		def, id, text string
		env           Env
		is            error
	}{
		{"p f ^@nope", "NO_MEM_ADDR", "no such name", testEnv(), errNoName},
		{"p f a=+0(^@lib:nope):u8", "NO_MEM_ADDR", "no such name", testEnv(), errNoName},
		{"p f ^@S", "NO_MEM_ADDR", "no process", nil, errNoProcess},
		{"p f ^@+0x1000", "BAD_FILE_OFFS", "no such name", testEnv(), errNoName},
		{"p f a=^name", "NOSUP_BTFARG", "no debug information", noDebug, ErrNoDebugInfo},
		{"p f a=^name->x.y:u8", "NOSUP_BTFARG", "no debug information", nil, ErrNoDebugInfo},
		{"p f ^$arg*", "NOSUP_BTFARG", "no debug information", noDebug, ErrNoDebugInfo},
		{"p f ^$arg*", "NOSUP_BTFARG", "no debug information", nil, ErrNoDebugInfo},
		{"p f +0(^name)", "NO_BTFARG", "no such name", testEnv(), errNoName},
		{"p f+4 ^$arg1", "NOFENTRY_ARGS", "", testEnv(), nil},
		{"p 0x1004 a=+0(^$arg1):string", "NOFENTRY_ARGS", "", inside, nil},
		{"p f ^$farg1 $farg2", "NOFENTRY_ARGS", "", inside, nil},
		{"r f " + strings.TrimSpace(numbered(64)) + " ^$arg65", "TOO_MANY_EARGS", "", nil, nil},
	} {
		t.Run(short(c.def), func(t *testing.T) {
			col := strings.IndexByte(c.def, '^')
			_, err := mustParse(t, c.def[:col]+c.def[col+1:]).Compile(c.env)
			var e *SyntaxError
			if !errors.As(err, &e) || e.Code.ID() != c.id || e.Col != col || !strings.Contains(e.Text, c.text) {
				t.Fatalf("Compile = %v (%+v), want %s at %d", err, e, c.id, col)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v does not wrap %v", err, c.is)
			}
		})
	}
}

// numbered lists $arg1 to $argN.
func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("$arg" + decimalOf(i+1) + " ")
	}
	return b.String()
}

func decimalOf(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return decimalOf(n/10) + string(rune('0'+n%10))
}

// TestLayout checks slots, fault bits and captures.
func TestLayout(t *testing.T) {
	p, err := mustParse(t, "p f %di $stack1 +0(%di):u8 +0(%di):u8[3] +0(%di):x64[2] +0(%di):string +0(%di):string[2] $comm %xmm0").Compile(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct{ slot, size, bit int }{
		{8, 8, -1}, {16, 8, 0}, {24, 8, 1}, {32, 8, 2}, {40, 16, 3}, {56, 8, -1}, {64, 16, -1}, {80, 8, -1}, {88, 8, 4},
	}
	for i, w := range want {
		a := p.Args[i]
		if a.Slot != w.slot || a.Size != w.size || a.FaultBit != w.bit {
			t.Errorf("argument %d: slot %d size %d bit %d, want %+v", i, a.Slot, a.Size, a.FaultBit, w)
		}
	}
	if p.Bitmap != 8 || p.Fixed != 96 {
		t.Errorf("bitmap %d, fixed %d", p.Bitmap, p.Fixed)
	}
	if p, _ = mustParse(t, "p f %di %si:u8 $comm").Compile(nil); p.Bitmap != 0 || p.Fixed != 24 {
		t.Errorf("without loads: bitmap %d, fixed %d", p.Bitmap, p.Fixed)
	}
	p, _ = mustParse(t, "r f $arg1 $retval +0($arg1):string $arg2:u8 $arg9 +8($arg1) $farg1").Compile(nil)
	if len(p.Entry) != 4 || p.EntrySize() != 40 {
		t.Errorf("%d captures, %d bytes: the same argument is kept once", len(p.Entry), p.EntrySize())
	}
	if p.Args[len(p.Args)-1].root() == SourceXMM || p.Entry[3].root() != SourceXMM {
		t.Error("the xmm registers are needed at the entry and not at the return")
	}
	if p, _ = mustParse(t, "p f %xmm0").Compile(nil); p.Args[0].root() != SourceXMM {
		t.Error("xmm0 is one of the xmm registers")
	}
}

func TestNeedsTracer(t *testing.T) {
	for _, c := range []struct {
		arg  string
		want bool
	}{
		{"%di", false}, {"+0(%di):string", false}, {"%di:symbol", false}, {"$comm", false},
		{"%di:symstr", false}, {`%di:symstr if a ~ "m*"`, true}, {`%di:symstr if b == 1`, false}, {"%di:%pd", false}, {"%di:%pD", false},
	} {
		p, err := mustParse(t, "p f b=%si a="+c.arg).Compile(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.NeedsTracer(); (got != "") != c.want {
			t.Errorf("%s: %q", c.arg, got)
		}
	}
}

// TestVariables compiles what debug information answers.
func TestVariables(t *testing.T) {
	env := testEnv()
	s32 := Type{Base: Signed, Size: 4}
	env.vars = map[string]Variable{
		"n":        {Chain: Chain{Reg: DI}, Type: s32},
		"p->n":     {Chain: Chain{Reg: DI}, InMemory: true, Off: 8, Type: s32},
		"p->next":  {Chain: Chain{Reg: DI}, InMemory: true, Type: DefaultType()},
		"name":     {Chain: Chain{Reg: DI, Loads: []Load{{0}}}, Type: Type{Base: String, Size: 8}},
		"untyped":  {Chain: Chain{Reg: SI}},
		"p->v":     {Chain: Chain{Reg: DI}, InMemory: true, Off: 8, Type: Type{Base: Hex, Size: 1, Count: 4}},
		"(T)%di->": {Chain: Chain{Reg: DI}},
	}
	env.params = []Variable{
		{Name: "n", Chain: Chain{Reg: DI}, Type: s32},
		{Name: "text", Chain: Chain{Reg: DI, Loads: []Load{{0}}}, Type: Type{Base: String, Size: 8}},
	}
	for _, c := range []struct{ def, want string }{
		{"p work n p->n x=p->next untyped", "n=8192 p->n=-2147483647 x=0x3000 untyped=0x1010"},
		{"p work n:u8 m=n:x64 p->n:u16", "n=0 m=0x2000 p->n=1"},
		{"p work name +0(p->next):string", `name="hello" arg2="hello"`},
		{"p work p->v p->v:u8 p->next:symstr", `p->v={0x1,0x0,0x0,0x80} arg2=1 p->next="0x3000"`},
		{"p work $arg* z=%si", `n=8192 text="hello" z=0x1010`},
		{"j work", `n=8192 text="hello"`},
		// Each value has a name of its own, and the definition's names go first, wherever they stand.
		{"p work n:x32 $params", `n=0x2000 n#2=8192 text="hello"`},
		{"p work $params n=%si", `n#2=8192 text="hello" n=0x1010`},
		{"p work text=%si $params z=%si if text == 0x1010", `text=0x1010 n=8192 text#2="hello" z=0x1010`},
		{"r work n name", `n=8192 name="hello"`},
	} {
		t.Run(c.def, func(t *testing.T) {
			got, _ := run(t, c.def, env, testContext())
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
	for _, c := range []caretCase{{"p f a=n->^nope:u8", "NO_BTF_FIELD"}, {"p f +0(n->^nope):u8", "NO_BTF_FIELD"}, {"p f ^m->nope", "NO_BTFARG"}, {"p f a=^n:string", "BAD_TYPE4STR"}, {"p f n:^x8[2]", "BAD_STRING"}} {
		col := strings.IndexByte(c.def, '^')
		_, err := mustParse(t, c.def[:col]+c.def[col+1:]).Compile(env)
		var e *SyntaxError
		if !errors.As(err, &e) || e.Code.ID() != c.id || e.Col != col {
			t.Errorf("%s: %v", c.def, err)
		}
	}
}

func TestPlaceError(t *testing.T) {
	d := mustParse(t, "p:ev work+3 a=%di")
	e := d.Error(BadInsnBndry, "nearest are work+0x1 and work+0x4", errNoName)
	if e.Col != 5 || !errors.Is(e, errNoName) || e.Error() != "Probe point is not an instruction boundary: nearest are work+0x1 and work+0x4" {
		t.Errorf("%d %v", e.Col, e)
	}
}

// What debug information makes of a definition may be too big, too: structures
// and all variables at once.
func TestTooBigByDebugInfo(t *testing.T) {
	env := testEnv()
	big := Type{Base: Hex, Size: 8, Count: 255, Layout: &Layout{Name: "struct big", Members: []Member{{Name: "n", Type: DefaultType()}}}}
	env.vars = map[string]Variable{"v": {Chain: Chain{Reg: DI}, InMemory: true, Type: big}}
	for range 17 {
		env.params = append(env.params, Variable{Name: "v", Chain: Chain{Reg: DI}, InMemory: true, Type: big})
	}
	args := func(n int) string {
		s := ""
		for i := range n {
			s += fmt.Sprintf(" a%d=v", i)
		}
		return s
	}
	if p, err := mustParse(t, "p f"+args(16)).Compile(env); err != nil || p.Fixed > MaxData {
		t.Errorf("16 structures: %v", err)
	}
	for _, c := range []caretCase{{"p f" + args(16) + " ^z=v x=%di", "EVENT_TOO_BIG"}, {"p f n=%di ^$arg*", "EVENT_TOO_BIG"}, {"p f" + args(15) + " ^z=v stack=64", "EVENT_TOO_BIG"}} {
		col := strings.IndexByte(c.def, '^')
		_, err := mustParse(t, c.def[:col]+c.def[col+1:]).Compile(env)
		var e *SyntaxError
		if !errors.As(err, &e) || e.Code.ID() != c.id || e.Col != col {
			t.Errorf("%s: %v", short(c.def[col:]), err)
		}
	}
}
