package fetch

import (
	"encoding/binary"
	"strings"
	"testing"
)

func bytesContext() *Context {
	c := testContext()
	m := c.Mem.(fakeMemory)
	m.put(0x3200, []byte("GET /\x00\xff\x1b[2J\"\\\u00e9\u009b\n"))
	var b [8]byte
	for i, n := range []int32{5, -1, 0, 17} {
		binary.LittleEndian.PutUint32(b[:], uint32(n))
		m.put(0x3300+4*uint64(i), b[:4])
	}
	c.Regs.GPR[SI], c.Regs.GPR[DX], c.Regs.GPR[CX] = 0x3200, 6, 1<<64-1
	c.Regs.GPR[R8] = 0xffffffff
	return c
}

func TestBytes(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"+0($arg2):bytes[$arg3]", `arg1="GET /\x00"`},
		{"a=+0(%si):bytes[16]", "a=\"GET /\\x00\\xff\\x1b[2J\\\"\\\\\u00e9\\xc2\""},
		{"a=+15(%si):bytes[3]", `a="\xc2\x9b\n"`},
		// As many as there are: none, cut, more than can be read.
		{`+0(%si):bytes[\0]`, `arg1=""`},
		{`a=+0(@0x6ffc):bytes[1] b=@0x6ffc:bytes[4] c=@0x6ffc:bytes[5]`, `a=(fault) b="edge" c=(fault)`},
		// Memory, with a size and a sign of its own.
		{`+0(%si):bytes[@0x3300:s32] +0(%si):bytes[@0x3308:s32]`, `arg1="GET /" arg2=""`},
		{`+0(%si):bytes[%dx:b2@1/8]`, `arg1="GET"`},
		// A negative length: nothing is there, the address says where it would be.
		{`+0(%si):bytes[%cx] +1(%si):bytes[@0x3304:s32] +0(%si):bytes[%r8:s32]`, "arg1=0x3200 arg2=0x3201 arg3=0x3200"},
		{`+0(%ax):bytes[%cx]`, "arg1=(fault)"},
		{`+0(%si):bytes[+0(\0x10)]`, "arg1=(fault)"},
	} {
		t.Run(c.args, func(t *testing.T) {
			got, _ := run(t, "p work "+c.args, testEnv(), bytesContext())
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// No more than MaxString is read, however large the number is.
func TestBytesAreBounded(t *testing.T) {
	c := testContext()
	c.Regs.GPR[SI], c.Regs.GPR[DX] = 0x9000, 1<<63-1
	d, err := Parse("p work +0(%si):bytes[%dx]")
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.Compile(nil)
	if err != nil {
		t.Fatal(err)
	}
	rec, _ := p.Eval(c, nil)
	vals, err := p.Decode(rec, nil)
	if err != nil || len(vals[0].Bytes) != MaxString || !vals[0].Truncated {
		t.Errorf("%d bytes, truncated %v, %v", len(vals[0].Bytes), vals[0].Truncated, err)
	}
}

func TestBytesAtReturn(t *testing.T) {
	// The address is the entry's, the length the return's: run has 0x77 in ax.
	c := bytesContext()
	m := c.Mem.(fakeMemory)
	m.put(0x3200, []byte(strings.Repeat("y", 0x77)+"no"))
	if got, _ := run(t, "r work a=+0($arg2):bytes[$retval] b=+0($arg2):bytes[$arg3]", testEnv(), c); got != `a="`+strings.Repeat("y", 0x77)+`" b="yyyyyy"` {
		t.Error(got)
	}
}

// Debug information knows the sizes of lengths, and where pointers lead.
func TestBytesOfVariables(t *testing.T) {
	env := testEnv()
	env.vars = map[string]Variable{
		"n":   {Chain: Chain{Reg: R8}, Type: Type{Base: Signed, Size: 4}},
		"len": {Chain: Chain{Source: SourceImm, Imm: 0x3300}, InMemory: true, Type: Type{Base: Signed, Size: 4}},
		"buf": {Chain: Chain{Reg: SI}, Type: DefaultType(), Pointer: true},
		"arr": {Chain: Chain{Reg: SI}, InMemory: true, Off: 1, Type: Type{Base: Char, Size: 1, Count: 4}},
		"f":   {Chain: Chain{Reg: SI}, Type: Type{Base: Float, Size: 8}},
	}
	got, _ := run(t, "p work buf:bytes[n] b=buf:bytes[len] c=arr:bytes[len] d=arr:bytes[3]", env, bytesContext())
	if want := `buf=0x3200 b="GET /" c="ET /\x00" d="ET "`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for def, code := range map[string]Code{"p work buf:bytes[f]": BadType, "p work buf:bytes[arr]": BadType, "p work n:bytes[4]": BadType4Str} {
		d, err := Parse(def)
		if err == nil {
			_, err = d.Compile(env)
		}
		if !isCode(err, code) {
			t.Errorf("%s: %v", def, err)
		}
	}
}

func TestBytesText(t *testing.T) {
	typ := Type{Base: Bytes, Size: 8}
	if typ.String() != "bytes" {
		t.Error(typ)
	}
	d := mustParse(t, "p:e work a=+0($arg2):bytes[$arg3]")
	if want := "p:kprobes/e work a=+0($arg2):bytes[$arg3]"; d.String() != want {
		t.Errorf("%s, want %s", d, want)
	}
	again, pass := run(t, "p work a=+0($arg2):bytes[$arg3] if a ~ \"GET*\"", testEnv(), bytesContext())
	if !pass || again != `a="GET /\x00"` {
		t.Error(again, pass)
	}
}
