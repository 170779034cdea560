package fetch

import "testing"

// TestWhereOfParts shows each place of what lies in several.
func TestWhereOfParts(t *testing.T) {
	v := Variable{Parts: []Part{{Chain: Chain{Source: SourceReg, Reg: DI}, Size: 8}, {Chain: Chain{Source: SourceReg, Reg: SI}, Off: 8, Size: 8}}}
	if got := v.Where(); got != "%di, %si" {
		t.Error(got)
	}
}

func TestWhere(t *testing.T) {
	for _, c := range []struct {
		v    Variable
		want string
	}{
		{Variable{Chain: Chain{Source: SourceReg, Reg: DI}}, "%di"},
		{Variable{Chain: Chain{Source: SourceReg, Reg: BP}, InMemory: true, Off: -20}, "-20(%bp)"},
		{Variable{Chain: Chain{Source: SourceReg, Reg: DI, Loads: []Load{{Off: 8}}}, InMemory: true}, "+0(+8(%di))"},
		{Variable{Chain: Chain{Source: SourceImm, Imm: 5}}, `\5`},
		{Variable{Chain: Chain{Source: SourceImm, Imm: ^uint64(0)}}, `\-1`},
		{Variable{Chain: Chain{Source: SourceImm, Imm: 0x404010}, InMemory: true, Off: 8}, "@0x404018"},
		{Variable{Chain: Chain{Source: SourceImm, Imm: 0x404010, Loads: []Load{{Off: 8}}}, InMemory: true, Off: 4}, "+4(@0x404018)"},
		{Variable{Chain: Chain{Source: SourceStack, Off: 16}}, "+16(%sp)"},
		{Variable{Chain: Chain{Source: SourceXMM, Reg: 3}}, "%xmm3"},
		{Variable{Chain: Chain{Source: SourceComputed, From: SourceReg, Reg: DI, Steps: []Step{
			{Op: StepShr, Imm: 32}, {Op: StepAnd, Imm: 255},
		}}}, "((%di >> 32) & 0xff)"},
		{Variable{Chain: Chain{Source: SourceComputed, From: SourceReg, Reg: SP, Steps: []Step{
			{Op: StepAdd, FromReg: true, Reg: AX}, {Op: StepLoad, Imm: 8, Size: 4}, {Op: StepNeg}, {Op: StepAdd, Imm: ^uint64(2)},
		}}}, "(-+8(%sp + %ax):x32 - 3)"},
		{Variable{Chain: Chain{Source: SourceComputed, From: SourceReg, Reg: SP, Steps: []Step{{Op: StepAdd, FromReg: true, Reg: AX}}}, InMemory: true, Off: 8}, "+8(%sp + %ax)"},
	} {
		if got := c.v.Where(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.v, got, c.want)
		}
	}
}
