package fetch

import "testing"

// TestStandalone: records of what only the process can explain don't stand alone.
func TestStandalone(t *testing.T) {
	for _, c := range []struct {
		def  string
		want bool
	}{
		{"p:e f", true},
		{"p:e f a=%di b=+0(%si):string c=%di:u8 d=+0(%di):x32[4] t=$time", true},
		{"p:e f a=%di s=+0(%si):symstr", false},
		{"p:e f s=%di:symbol", false},
		{"p:e f stack=4", false},
	} {
		d, err := Parse(c.def)
		if err != nil {
			t.Fatalf("%s: %v", c.def, err)
		}
		p, err := d.Compile(nil)
		if err != nil {
			t.Fatalf("%s: %v", c.def, err)
		}
		if got := p.Standalone(); got != c.want {
			t.Errorf("%s: %v", c.def, got)
		}
	}
	pointer := Type{Base: SymbolName, Size: 8}
	inside := Type{Base: Hex, Size: 8, Count: 1, Layout: &Layout{Members: []Member{{Name: "f", Type: pointer}}}}
	p := &Program{Args: []ArgProgram{{Type: inside}}}
	if p.Standalone() {
		t.Error("a structure with a symbol's name in it stands alone")
	}
}
