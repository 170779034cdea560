package fetch

import (
	"math"
	"strings"
	"testing"

	"kprobe/symbols"
)

// testContext is a hit with known registers, memory and names.
func testContext() *Context {
	m := fakeMemory{}
	regs := &Regs{IP: 0x1004, Flags: 0x246, OrigAX: 0xffffffffffffffff, FSBase: 0x7000, CS: 0x33}
	for i := range regs.GPR {
		regs.GPR[i] = 0x100 + uint64(i)
	}
	regs.GPR[AX] = 0xfffffffffffffffe
	regs.GPR[SP] = 0x8000
	regs.GPR[DI] = 0x2000
	regs.GPR[SI] = 0x1010
	regs.GPR[DX] = 0x1122334455667788
	for i := uint64(0); i < 16; i++ {
		m.put64(0x8000+8*i, 0xa0+i)
	}
	m.put64(0x2000, 0x3000)                   // a pointer to text
	m.put64(0x2008, 0xffffffff80000001)       // numbers
	m.put64(0x2010, 0x5000)                   // text that ends at a page's end
	m.put64(0x2018, 0xdead0000)               // a wild pointer
	m.put(0x3000, []byte("hello\x00"))        //
	m.put(0x3100, []byte("a\nb\x01\"\\\x00")) // text that needs care
	m.put(0x4ff8, []byte("12345678"))         // runs on into 0x5000
	m.put(0x5000, []byte("9\x00"))
	m.put(0x6ffc, []byte("edge")) // 0x7000 is unmapped
	m.put(0x9000, []byte(strings.Repeat("x", 5000)))
	m.put(0xb000, []byte("last\x00"))
	m.put64(0x2020, math.Float64bits(1.5))
	m.put64(0x20c000, 0xfbad2488) // a FILE
	m.put64(0x20c000+112, 7)
	vec := &Vector{}
	copy(vec[0][:], []byte{0, 0, 0, 0, 0, 0, 0xf8, 0x3f}) // 1.5
	copy(vec[1][:], []byte{0, 0, 0x20, 0x40})             // 2.5 as f32
	return &Context{
		Regs: regs, Mem: m, Comm: "redis", PID: 41, TID: 43, CPU: 1, Time: 1234567,
		Vector: func() (*Vector, error) { return vec, nil },
		ReadLink: func(fd int) (string, error) {
			if fd == 7 {
				return "/etc/passwd", nil
			}
			return "", errNoName
		},
	}
}

func testEnv() *fakeEnv {
	return &fakeEnv{data: map[string]symbols.Addr{":S": 0x2000, "libc:environ": 0x2000, ":work": 0x1000}}
}

// run evaluates one definition and gives its values as text, in order.
func run(t *testing.T, def string, env Env, c *Context) (text string, pass bool) {
	t.Helper()
	d, err := Parse(def)
	if err != nil {
		t.Fatalf("Parse(%q): %v", def, err)
	}
	p, err := d.Compile(env)
	if err != nil {
		t.Fatalf("Compile(%q): %v", def, err)
	}
	if d.Kind == Return {
		c.Entry = p.EvalEntry(c, nil)
		if len(c.Entry) != p.EntrySize() {
			t.Errorf("%s: %d bytes of entry, EntrySize %d", def, len(c.Entry), p.EntrySize())
		}
		// Everything is different at the return.
		c.Regs = &Regs{GPR: [16]uint64{AX: 0x77, SP: 0x8010}}
		c.Vector = nil
	}
	rec, pass := p.Eval(c, nil)
	if !pass {
		if len(rec) != 0 {
			t.Errorf("%s: a hit that was filtered left %d bytes", def, len(rec))
		}
		return "", false
	}
	if len(rec) > MaxData {
		t.Errorf("%s: record of %d bytes", def, len(rec))
	}
	vals, err := p.Decode(rec, nil)
	if err != nil {
		t.Fatalf("Decode(%q): %v", def, err)
	}
	var out []byte
	for i, f := range p.Fields() {
		if i > 0 {
			out = append(out, ' ')
		}
		out = append(append(out, f.Name...), '=')
		out = AppendText(out, f.Type, vals[i], env.(Symbolizer))
	}
	return string(out), true
}

func TestEval(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"%ax", "arg1=0xfffffffffffffffe"},
		{"%rax:s64 %ax:s8 %ax:u8 %ax:x16 %ax:s32 %ax:u32", "arg1=-2 arg2=-2 arg3=254 arg4=0xfffe arg5=-2 arg6=4294967294"},
		{"%r15 %ip %flags %cs %fs_base", "arg1=0x10f arg2=0x1004 arg3=0x246 arg4=0x33 arg5=0x7000"},
		{"%orig_ax:s32", "arg1=-1"},
		{"$stack $stack0 $stack3:u8", "arg1=0x8000 arg2=0xa0 arg3=163"},
		{"$arg1 $arg2 $arg3 $arg4 $arg5 $arg6", "arg1=0x2000 arg2=0x1010 arg3=0x1122334455667788 arg4=0x101 arg5=0x108 arg6=0x109"},
		{"$arg7 $arg8:u8", "arg1=0xa1 arg2=162"},
		{"$comm c=$COMM:string", `arg1="redis" c="redis"`},
		{"$pid $tid $cpu $time", "arg1=41 arg2=43 arg3=1 arg4=1234567"},
		{`\5 \-1:s16 \0x10 \+3:u8 a=\"it=:is"`, `arg1=0x5 arg2=-1 arg3=0x10 arg4=3 a="it=:is"`},
		{"@0x2008 @0x2008:s32 @0x200c:u32", "arg1=0xffffffff80000001 arg2=-2147483647 arg3=4294967295"},
		{"@S+8:x32 @S @libc:environ @libc:environ:x16 @libc:environ+8:s64", "arg1=0x80000001 arg2=0x3000 arg3=0x3000 arg4=0x3000 arg5=-2147483647"},
		{"+8(%di):s32 -8(+0x18($stack)):u8", "arg1=-2147483647 arg2=(fault)"},
		{"+0(+0(%di)):string +0(%di):ustring +u0(+u0(%di)):string", `arg1="hello" arg2="" arg3="hello"`},
		{"+0(%di):string[3]", `arg1={"hello",(fault),"9"}`},
		{"+8(%di):x8[4] +8(%di):s16[2] +8(%di):x8[1]", "arg1={0x1,0x0,0x0,0x80} arg2={1,-32768} arg3={0x1}"},
		{"+0(+0(%di)):char +0(+0(%di)):char[3]", "arg1='h' arg2={'h','e','l'}"},
		{"%dx:b4@4/8 %dx:b12@4/16 %dx:b64@0/64 %dx:b1@63/64", "arg1=8 arg2=1912 arg3=1234605616436508552 arg4=0"},
		{"+8(%di):b4@28/32 +8(%di):b2@6/8[4]", "arg1=8 arg2={0,0,0,2}"},
		{"%si:symbol %si:symstr %dx:symbol", `arg1=work+0x10/0x100 arg2="work+0x10/0x100" arg3=0x1122334455667788`},
		{"%xmm0:f64 %xmm1:f32 $farg1 $farg2:f32 %xmm0", "arg1=1.5 arg2=2.5 arg3=1.5 arg4=2.5 arg5=0x3ff8000000000000"},
		{"+0x20(%di):f64 +0x20(%di):f64[1]", "arg1=1.5 arg2={1.5}"},
		{`\7:%pd \8:%pd \7:%pD \0x20c000:%pD \0x3000:%pD \-1:%pd`, `arg1="/etc/passwd" arg2=(fault) arg3="/etc/passwd" arg4="/etc/passwd" arg5=(fault) arg6=(fault)`},
		{`\0x3100:string`, `arg1="a\nb\x01\"\\"`},
		// Text up to the last byte of a page, and over it.
		{`\0x4ff8:string \0x6ffc:string \0x6fff:string`, `arg1="123456789" arg2=(fault) arg3=(fault)`},
		{"@0x6ff9:x64 @0x6ff8:x64 @0x6ffc:x8[5] @0x6ffc:x8[4] @0x6fff:u16", "arg1=(fault) arg2=0x6567646500000000 arg3=(fault) arg4={0x65,0x64,0x67,0x65} arg5=(fault)"},
		{"+0(+0x18(%di)):string +0(+0(+0x18(%di))) @0x6ff8:string[1] @0x6ff9:string[1]", "arg1=(fault) arg2=(fault) arg3={(fault)} arg4={(fault)}"},
		{"+0xffffff(%di) -0x1(\\0):u8", "arg1=(fault) arg2=(fault)"},
		{"+0(@0x2000):string +0(+0(@S)):u8", `arg1="hello" arg2=(fault)`},
	} {
		t.Run(c.args, func(t *testing.T) {
			got, _ := run(t, "p work "+c.args, testEnv(), testContext())
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestEvalReturn(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"$retval", "arg1=0x77"},
		{"$arg1 $retval:s32 $arg1:u16", "arg1=0x2000 arg2=119 arg3=8192"},
		{"$arg7 $stack0", "arg1=0xa1 arg2=0xa2"},
		{"+0(+0($arg1)):string", `arg1="hello"`},
		{"$farg1 $farg2:f32", "arg1=1.5 arg2=2.5"},
		{"%xmm0", "arg1=(fault)"},
		{"%di", "arg1=0x0"},
		{"$entrytime t=$entrytime", "arg1=1234567 t=1234567"},
		{"$duration d=$duration:s64 if $duration == 0ns && d < 1us", "arg1=0 d=0"},
	} {
		t.Run(c.args, func(t *testing.T) {
			got, _ := run(t, "r work "+c.args, testEnv(), testContext())
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestEntryFaults checks that what could not be kept at the entry is a fault
// at the return, and that only that is.
func TestEntryFaults(t *testing.T) {
	c := testContext()
	c.Regs.GPR[SP] = 0xf0000
	c.Vector = nil
	got, _ := run(t, "r work $arg1 $arg7 $farg1 +0($arg7) $arg2", testEnv(), c)
	if want := "arg1=0x2000 arg2=(fault) arg3=(fault) arg4=(fault) arg5=0x1010"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	c = testContext()
	d, _ := Parse("r work $arg1")
	p, _ := d.Compile(nil)
	if rec, pass := p.Eval(c, nil); pass || len(rec) != 0 {
		t.Errorf("without entry data: recorded %x", rec)
	}
	c.Regs = nil
	c.Entry = make([]byte, p.EntrySize())
	if rec, pass := p.Eval(c, nil); pass || len(rec) != 0 {
		t.Errorf("without registers: recorded %x", rec)
	}
}

// TestNothingThere evaluates over a context that has registers and nothing else.
func TestNothingThere(t *testing.T) {
	got, _ := run(t, `p f %di $stack0 x=%xmm0 +0(%di):string \1:string \7:%pd $comm`, testEnv(), &Context{Regs: &Regs{}})
	if want := `arg1=0x0 arg2=(fault) x=(fault) arg4=(fault) arg5=(fault) arg6=(fault) arg7=""`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestLongText(t *testing.T) {
	d, err := Parse(`p f a=\0x9000:string b=\0x93e8:string`)
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.Compile(nil)
	if err != nil {
		t.Fatal(err)
	}
	rec, _ := p.Eval(testContext(), []byte("before"))
	vals, err := p.Decode(rec[6:], nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(vals[0].Bytes); n != MaxString || !vals[0].Truncated {
		t.Errorf("5000 bytes: %d recorded, truncated %v", n, vals[0].Truncated)
	}
	if n := len(vals[1].Bytes); n != 4000 || vals[1].Truncated {
		t.Errorf("4000 bytes: %d recorded, truncated %v", n, vals[1].Truncated)
	}
}

// TestFullRecord asks for more text than a record takes.
func TestFullRecord(t *testing.T) {
	d, err := Parse("p f" + strings.Repeat(` \0x9000:string`, 20))
	if err != nil {
		t.Fatal(err)
	}
	p, _ := d.Compile(nil)
	rec, _ := p.Eval(testContext(), nil)
	if len(rec) != MaxData {
		t.Errorf("record of %d bytes, want %d", len(rec), MaxData)
	}
	vals, err := p.Decode(rec, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range vals {
		want := min(MaxString, max(0, MaxData-p.Fixed-i*MaxString))
		if len(v.Bytes) != want || !v.Truncated {
			t.Errorf("text %d has %d bytes, want %d", i, len(v.Bytes), want)
		}
	}
}

func TestEvalAllocatesNothing(t *testing.T) {
	d, err := Parse(`p f %di +8(%di):s32 +0(+0(%di)):string +0(%di):string[3] +8(%di):x8[4] %xmm0:f64 $comm $stack1 if arg2 < 5 && arg3 == "hello" && comm ~ "r*s"`)
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.Compile(testEnv())
	if err != nil {
		t.Fatal(err)
	}
	c := testContext()
	rec := make([]byte, 0, 1<<16)
	var vals []Value
	out := make([]byte, 0, 1<<16)
	if n := testing.AllocsPerRun(100, func() {
		var pass bool
		rec, pass = p.Eval(c, rec[:0])
		if !pass {
			t.Fatal("filtered")
		}
		vals, err = p.Decode(rec, vals)
		out = out[:0]
		for i, f := range p.Fields() {
			out = AppendText(out, f.Type, vals[i], nil)
			out = AppendJSON(out, f.Type, vals[i], nil)
		}
	}); n != 0 {
		t.Errorf("%v allocations a hit", n)
	}
	r, err := Parse("r f $arg1 $arg7 $farg1")
	if err != nil {
		t.Fatal(err)
	}
	rp, _ := r.Compile(nil)
	if n := testing.AllocsPerRun(100, func() { rec = rp.EvalEntry(c, rec[:0]) }); n != 0 {
		t.Errorf("%v allocations an entry", n)
	}
}

func BenchmarkEval(b *testing.B) {
	d, _ := Parse("p f %di %si +0(+0(%di)):string")
	p, _ := d.Compile(nil)
	c := testContext()
	var rec []byte
	b.ReportAllocs()
	for b.Loop() {
		rec, _ = p.Eval(c, rec[:0])
	}
}

func BenchmarkDecodeText(b *testing.B) {
	d, _ := Parse("p f %di %si:s32")
	p, _ := d.Compile(nil)
	rec, _ := p.Eval(testContext(), nil)
	var vals []Value
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		vals, _ = p.Decode(rec, vals)
		out = out[:0]
		for i, f := range p.Fields() {
			out = AppendText(out, f.Type, vals[i], nil)
		}
	}
}
