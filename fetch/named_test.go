package fetch

import "testing"

// What has no name is called as it was asked for, and filters take that, and the
// names of values.
func TestUnnamed(t *testing.T) {
	color := &Layout{Name: "enum color", Enum: []Enumerator{{"RED", 1}, {"GREEN", 2}}}
	state := &Layout{Name: "State", Enum: []Enumerator{{"Up", 7}}}
	env := testEnv()
	env.vars = map[string]Variable{
		"f->n":       {Chain: Chain{Source: SourceImm, Imm: 5}, Type: Type{Base: Signed, Size: 4}},
		"f->c":       {Chain: Chain{Source: SourceImm, Imm: 2}, Type: Type{Base: Unsigned, Size: 4, Layout: color}},
		"s":          {Chain: Chain{Source: SourceImm, Imm: 7}, Type: Type{Base: Signed, Size: 1, Layout: state}},
		"ok":         {Chain: Chain{Source: SourceImm, Imm: 1}, Type: Type{Base: Unsigned, Size: 1, Layout: &Layout{Bool: true}}},
		"neither":    {Chain: Chain{Source: SourceImm, Imm: 50}, Type: Type{Base: Unsigned, Size: 1, Layout: &Layout{Bool: true}}},
		"v[1].x":     {Chain: Chain{Source: SourceImm, Imm: 9}, Type: Type{Base: Unsigned, Size: 4}},
		"*p":         {Chain: Chain{Source: SourceImm, Imm: 3}, Type: Type{Base: Unsigned, Size: 4}},
		"(T*)x->y":   {Chain: Chain{Source: SourceImm, Imm: 4}, Type: Type{Base: Unsigned, Size: 4}},
		"$retval2":   {Chain: Chain{Source: SourceImm, Imm: 8}, Type: Type{Base: Unsigned, Size: 4}},
		"$retval2.x": {Chain: Chain{Source: SourceImm, Imm: 9}, Type: Type{Base: Unsigned, Size: 4}},
		"f->n.inner": {Chain: Chain{Source: SourceImm, Imm: 6}, Type: Type{Base: Unsigned, Size: 4}},
	}
	for def, want := range map[string]string{
		"p work f->n v[1].x *p (T*)x->y":                             "f->n=5 v[1].x=9 *p=3 (T*)x->y=4",
		"p work f->n:u8 a=f->n":                                      "f->n=5 a=5",
		"p work f->n f->n":                                           "f->n=5 arg2=5",
		"p work +0(%di):u8 %dx:u8":                                   "arg1=0 arg2=136",
		"p work f->n if f->n == 5":                                   "f->n=5",
		"p work f->n if f->n>=6":                                     "",
		"p work f->n f->n.inner if f->n.inner == 6 && (f->n == 5)":   "f->n=5 f->n.inner=6",
		"p work v[1].x *p if *p < 4 && !(v[1].x != 9)":               "v[1].x=9 *p=3",
		"p work (T*)x->y if (T*)x->y == 4 || ((T*)x->y == 1)":        "(T*)x->y=4",
		"p work f->c s if f->c == GREEN && s != Down || f->c == RED": "error",
		"p work f->c s if f->c == GREEN && s == State::Up":           "f->c=GREEN s=Up",
		"p work f->c s if f->c == \"GREEN\" && s >= Up":              "f->c=GREEN s=Up",
		"p work f->c if f->c & RED":                                  "",
		"p work ok if ok == true && ok != false":                     "ok=true",
		"p work neither if neither != true && neither != false":      "neither=50",
		"r work $retval2 $retval2 $retval2.x":                        "retval2=8 arg2=8 $retval2.x=9",
		"r work $retval2 if retval2 == 9":                            "",
		"p work ok if ok == yes":                                     "error",
		"p work f->n if f->n == GREEN":                               "error",
	} {
		d, err := Parse(def)
		if err == nil {
			_, err = d.Compile(env)
		}
		if want == "error" || err != nil {
			if (err == nil) == (want == "error") {
				t.Errorf("%s: %v", def, err)
			}
			continue
		}
		if again, err := Parse(d.String()); err != nil || again.String() != d.String() {
			t.Errorf("%s is written as %s: %v", def, d, err)
		}
		if got, _ := run(t, def, env, testContext()); got != want {
			t.Errorf("%s: %q, want %q", def, got, want)
		}
	}
}
