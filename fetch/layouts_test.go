package fetch

import (
	"errors"
	"testing"
)

// debugEnv is a fakeEnv that answers as debug information would.
type debugEnv struct {
	*fakeEnv
	result    Variable
	resultErr error
	argument  map[int]Variable
	locals    []Variable
}

func (e *debugEnv) Variables(which Which) ([]Variable, error) {
	switch which {
	case WhichParams:
		return e.params, nil
	case WhichLocals:
		return e.locals, nil
	}
	return append(append([]Variable{}, e.params...), e.locals...), nil
}

func (e *debugEnv) Argument(n int) (Variable, error) {
	if v, ok := e.argument[n]; ok {
		return v, nil
	}
	return Variable{}, errNoName
}

func (e *debugEnv) Result() (Variable, error) { return e.result, e.resultErr }

func color() *Layout {
	return &Layout{Name: "enum color", Enum: []Enumerator{{"RED", 0}, {"GREEN", 5}, {"BLUE", ^uint64(2)}}}
}

func conn() *Layout {
	return &Layout{Name: "struct conn", Members: []Member{
		{Name: "fd", Off: 0, Type: Type{Base: Signed, Size: 4}},
		{Name: "up", Off: 4, Type: Type{Base: Unsigned, Size: 1, Layout: &Layout{Bool: true}}},
		{Name: "level", Off: 4, Type: Type{Base: Signed, Size: 2, BitWidth: 5, BitOff: 8}},
		{Name: "name", Off: 8, Type: Type{Base: Char, Size: 1, Count: 8, Layout: &Layout{Text: true}}},
		{Name: "at", Off: 16, Type: Type{Base: Hex, Size: 8, Count: 1, Layout: &Layout{Members: []Member{
			{Name: "x", Off: 0, Type: Type{Base: Signed, Size: 4}}, {Name: "y", Off: 4, Type: Type{Base: Signed, Size: 4}}}}}},
		{Name: "hist", Off: 24, Type: Type{Base: Unsigned, Size: 2, Count: 3}},
		{Name: "color", Off: 32, Type: Type{Base: Signed, Size: 4, Layout: color()}},
	}, More: true}
}

// TestLayouts records and prints values with names and members.
func TestLayouts(t *testing.T) {
	mem := fakeMemory{}
	mem.put(0x5000, []byte{0xd6, 0xff, 0xff, 0xff, 1, 0x19, 0, 0})
	mem.put(0x5008, []byte("ab\x00zzzzz"))
	mem.put(0x5010, []byte{11, 0, 0, 0, 0xea, 0xff, 0xff, 0xff})
	mem.put(0x5018, []byte{1, 0, 2, 0, 3, 0, 0, 0})
	mem.put(0x5020, []byte{0xfd, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	mem.put(0x6000, []byte("text without an end"))
	flags := &Layout{Flags: true, Enum: []Enumerator{{"NONE", 0}, {"R", 1}, {"W", 2}, {"X", 4}}}
	reg := func(r Reg) Chain { return Chain{Source: SourceReg, Reg: r} }
	length := reg(CX)
	env := &debugEnv{fakeEnv: testEnv()}
	env.vars = map[string]Variable{
		"c":     {Chain: reg(DI), Type: DefaultType(), Pointer: true},
		"*c":    {Chain: reg(DI), InMemory: true, Type: Type{Base: Hex, Size: 8, Count: 5, Layout: conn()}},
		"flags": {Chain: reg(SI), Type: Type{Base: Unsigned, Size: 4, Layout: flags}},
		"odd":   {Chain: reg(DX), Type: Type{Base: Unsigned, Size: 4, Layout: flags}},
		"col":   {Chain: reg(AX), Type: Type{Base: Signed, Size: 4, Layout: color()}},
		"none":  {Chain: reg(DX), Type: Type{Base: Signed, Size: 4, Layout: color()}},
		"ok":    {Chain: reg(SI), Type: Type{Base: Unsigned, Size: 1, Layout: &Layout{Bool: true}}},
		"rune":  {Chain: reg(R8), Type: Type{Base: Char, Size: 4}},
		"s":     {Chain: reg(BX), Type: Type{Base: String, Size: 8}, Len: &length},
		"list": {Chain: reg(DI), Off: 16, InMemory: true, Type: Type{Base: Hex, Size: 8, Count: 1, Layout: &Layout{Array: true, More: true,
			Members: []Member{{Type: Type{Base: Signed, Size: 4}}, {Off: 4, Type: Type{Base: Signed, Size: 4}}}}}},
		"unit": {Chain: reg(DI), Off: 16, InMemory: true, Type: Type{Base: Hex, Size: 8, Count: 1, Layout: &Layout{Switch: 1,
			Members: []Member{{Type: Type{Base: Unsigned, Size: 4}}, {Name: "Unit", Case: true, Cases: []uint64{11}, Type: Type{Base: Hex, Size: 1, Count: 1, Layout: &Layout{}}}}}}},
	}
	ctx := &Context{Regs: &Regs{}, Mem: mem}
	for r, v := range map[int]uint64{DI: 0x5000, SI: 5, DX: 0x49, AX: 5, CX: 4, BX: 0x6000, R8: 0xe9} {
		ctx.Regs.GPR[r] = v
	}
	for _, c := range []struct{ arg, text, json string }{
		{"c:struct", `{fd=-42,up=true,level=-7,name="ab",at={x=11,y=-22},hist={1,2,3},color=BLUE,...}`,
			`{"fd":-42,"up":true,"level":-7,"name":"ab","at":{"x":11,"y":-22},"hist":[1,2,3],"color":"BLUE"}`},
		{"c", "0x5000", "20480"},
		{"flags", "R|X", `"R|X"`},
		{"odd", "R|0x48", `"R|0x48"`},
		{"col", "GREEN", `"GREEN"`},
		{"none", "73", "73"},
		{"ok", "5", "5"}, // is neither true nor false; up of the structure is true
		{"rune", "'é'", `"é"`},
		{"s", `"text"`, `"text"`},
		{"list", "{11,-22,...}", "[11,-22]"},
		{"unit", "{Unit}", `{"Unit":{}}`},
		{"flags:x32", "0x5", "5"},
		{"c:string", `"\xd6\xff\xff\xff\x01\x19"`, `"\ufffd\ufffd\ufffd\ufffd\u0001\u0019"`},
	} {
		p, err := mustParse(t, "p f v="+c.arg).Compile(env)
		if err != nil {
			t.Errorf("%s: %v", c.arg, err)
			continue
		}
		rec, _ := p.Eval(ctx, nil)
		vals, err := p.Decode(rec, nil)
		if err != nil {
			t.Errorf("%s: %v", c.arg, err)
			continue
		}
		if got := string(AppendText(nil, p.Fields()[0].Type, vals[0], nil)); got != c.text {
			t.Errorf("%s prints %s, want %s", c.arg, got, c.text)
		}
		if got := string(AppendJSON(nil, p.Fields()[0].Type, vals[0], nil)); got != c.json {
			t.Errorf("%s as JSON is %s, want %s", c.arg, got, c.json)
		}
	}
	for arg, id := range map[string]string{"flags:struct": "NO_PTR_STRCT", "%di:struct": "BAD_TYPE", "c:struct[2]": "BAD_TYPE"} {
		d, err := Parse("p f v=" + arg)
		if err == nil {
			_, err = d.Compile(env)
		}
		var e *SyntaxError
		if !errors.As(err, &e) || e.Code.ID() != id {
			t.Errorf("%s: %v, want %s", arg, err, id)
		}
	}
}

// TestCountedText reads as many bytes as are told, and no more than fit.
func TestCountedText(t *testing.T) {
	mem := fakeMemory{}
	mem.put(0x7ffc, []byte("abcd")) // the page's end
	env := &debugEnv{fakeEnv: testEnv()}
	length := Chain{Source: SourceReg, Reg: CX}
	env.vars = map[string]Variable{"s": {Chain: Chain{Source: SourceReg, Reg: BX}, Type: Type{Base: String, Size: 8}, Len: &length}}
	p, err := mustParse(t, "p f s").Compile(env)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at, n uint64
		want  string
		fault bool
	}{
		{0x7ffc, 4, "abcd", false}, {0x7ffc, 0, "", false}, {0, 0, "", false},
		{0x7ffc, 5, "", true}, {0x7ffc, 1 << 63, "", true}, {0x7ffc, 1 << 40, "", true},
	} {
		ctx := &Context{Regs: &Regs{}, Mem: mem}
		ctx.Regs.GPR[BX], ctx.Regs.GPR[CX] = c.at, c.n
		rec, _ := p.Eval(ctx, nil)
		vals, err := p.Decode(rec, nil)
		if err != nil || vals[0].Fault != c.fault || string(vals[0].Bytes) != c.want {
			t.Errorf("%d bytes at %#x: %+v (%v), want %q, fault %v", c.n, c.at, vals[0], err, c.want, c.fault)
		}
		// Without memory only an empty text can be told.
		ctx.Mem = nil
		rec, _ = p.Eval(ctx, nil)
		if vals, err = p.Decode(rec, nil); err != nil || vals[0].Fault != (c.n != 0) || len(vals[0].Bytes) != 0 {
			t.Errorf("%d bytes at %#x without memory: %+v (%v)", c.n, c.at, vals[0], err)
		}
	}
}

// TestSteps runs each operation of a computed value.
func TestSteps(t *testing.T) {
	mem := fakeMemory{}
	mem.put64(0x5000, 0x1122334455667788)
	regs := &Regs{}
	regs.GPR[DI], regs.GPR[SI] = 0x5000, 3
	imm := func(op StepOp, x uint64) []Step { return []Step{{Op: op, Imm: x}} }
	for _, c := range []struct {
		steps []Step
		want  uint64
		fault bool
	}{
		{imm(StepAdd, 16), 0x5010, false}, {imm(StepSub, 1), 0x4fff, false}, {imm(StepMul, 3), 0xf000, false},
		{imm(StepAnd, 0x4fff), 0x4000, false}, {imm(StepOr, 1), 0x5001, false}, {imm(StepXor, 0x5001), 1, false},
		{imm(StepShl, 4), 0x50000, false}, {imm(StepShl, 64), 0, false}, {imm(StepShr, 12), 5, false},
		{[]Step{{Op: StepNeg}, {Op: StepSar, Imm: 12}}, ^uint64(4), false}, {[]Step{{Op: StepNeg}, {Op: StepSar, Imm: 99}}, ^uint64(0), false},
		{imm(StepNot, 0), ^uint64(0x5000), false}, {imm(StepEq, 0x5000), 1, false}, {imm(StepNe, 0x5000), 0, false},
		{[]Step{{Op: StepLoad, Size: 2, Imm: 1}}, 0x6677, false}, {[]Step{{Op: StepLoad, Size: 8}}, 0x1122334455667788, false},
		{[]Step{{Op: StepMul, FromReg: true, Reg: SI}}, 0xf000, false},
		{[]Step{{Op: StepLoad, Size: 8, Imm: 1 << 40}}, 0, true}, {[]Step{{Op: StepLoad, Size: 0}}, 0, true},
	} {
		env := testEnv()
		env.vars = map[string]Variable{"v": {Chain: Chain{Source: SourceComputed, From: SourceReg, Reg: DI, Steps: c.steps}}}
		p, err := mustParse(t, "p f v").Compile(env)
		if err != nil {
			t.Fatal(err)
		}
		rec, _ := p.Eval(&Context{Regs: regs, Mem: mem}, nil)
		vals, err := p.Decode(rec, nil)
		if err != nil || vals[0].Fault != c.fault || vals[0].Int != c.want {
			t.Errorf("%v: %+v (%v), want %#x, fault %v", c.steps, vals[0], err, c.want, c.fault)
		}
	}
}

// TestResults asks for $retval, $argN and lists as debug information has them.
func TestResults(t *testing.T) {
	env := &debugEnv{fakeEnv: testEnv()}
	env.result = Variable{Chain: Chain{Source: SourceXMM, Reg: 0}, Type: Type{Base: Float, Size: 8}}
	env.argument = map[int]Variable{2: {Chain: Chain{Source: SourceReg, Reg: BX}}}
	env.params = []Variable{{Name: "a", Chain: Chain{Source: SourceReg, Reg: DI}, Type: Type{Base: Signed, Size: 4}}}
	env.locals = []Variable{{Name: "l", Chain: Chain{Source: SourceReg, Reg: R12}, Type: Type{Base: Signed, Size: 4}}}
	p, err := mustParse(t, "r f $retval $arg1 $arg2 $vars").Compile(env)
	if err != nil {
		t.Fatal(err)
	}
	if a := p.Args[0]; a.Source != SourceXMM || a.Type.Base != Float {
		t.Errorf("$retval is %+v, want xmm0 as f64", a)
	}
	want := []Reg{DI, BX, R12}
	if len(p.Entry) != len(want) {
		t.Fatalf("captures %+v, want %v", p.Entry, want)
	}
	for i, r := range want {
		if p.Entry[i].Reg != r {
			t.Errorf("capture %d is %v, want %v", i, p.Entry[i].Reg, r)
		}
	}
	if f := p.Fields(); len(f) != 5 || f[3].Name != "a" || f[4].Name != "l" {
		t.Errorf("fields %+v", f)
	}
	env.resultErr = ErrNoResult
	var e *SyntaxError
	if _, err := mustParse(t, "r f $retval").Compile(env); !errors.As(err, &e) || e.Code != NoRetval {
		t.Errorf("$retval of a function that returns nothing: %v", err)
	}
	env.resultErr = ErrNoDebugInfo
	if p, err := mustParse(t, "r f $retval").Compile(env); err != nil || p.Args[0].Reg != AX || p.Args[0].Type != DefaultType() {
		t.Errorf("$retval without debug information: %v", err)
	}
}
