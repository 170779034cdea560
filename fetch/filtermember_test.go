package fetch

import "testing"

// Parts of variables have names with dots, which filters take.
func TestFilterOnMembers(t *testing.T) {
	env := &debugEnv{fakeEnv: &fakeEnv{params: []Variable{
		{Name: "list.len", Chain: Chain{Source: SourceReg, Reg: SI}, Type: Type{Base: Signed, Size: 8}},
		{Name: "fn", Chain: Chain{Source: SourceReg, Reg: DI}, Type: DefaultType()},
	}}}
	for text, want := range map[string]bool{
		"list.len == 3": true, "list.len > 3": false, "fn == 5 && list.len<4": true, "!(list.len == 3)": false,
	} {
		d, err := Parse("p f $params if " + text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		p, err := d.Compile(env)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		regs := &Regs{}
		regs.GPR[SI], regs.GPR[DI] = 3, 5
		if _, pass := p.Eval(&Context{Regs: regs}, nil); pass != want {
			t.Errorf("%s: %v", text, pass)
		}
	}
	for _, text := range []string{"list.cap == 3", "list. == 3", "list.len. == 3", "list.3 == 1"} {
		d, err := Parse("p f $params if " + text)
		if err == nil {
			_, err = d.Compile(env)
		}
		if err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}
