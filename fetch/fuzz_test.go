package fetch

import (
	"errors"
	"testing"
	"unicode/utf8"
)

// FuzzParse checks that any text gives a definition that survives its
// canonical form and every stage to the printed line, or an error with a
// caret that can be printed.
func FuzzParse(f *testing.F) {
	for _, s := range goodDefs() {
		f.Add(s)
	}
	for _, c := range append(kernelCarets(), moreCarets()...) {
		f.Add(c.def)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := Parse(s)
		if err != nil {
			var e *SyntaxError
			if !errors.As(err, &e) {
				t.Fatalf("%v is no SyntaxError", err)
			}
			if e.Col < 0 || e.Col > len(e.Input)+1 || e.Text == "" || e.Caret() == "" {
				t.Errorf("error %+v", e)
			}
			return
		}
		evalAll(t, d)
		// The text of a line has no line ends; ParseFile sees to that.
		if !utf8.ValidString(s) {
			return
		}
		canon := d.String()
		o, err := Parse(canon)
		if err != nil {
			t.Fatalf("%q gives %q, which is refused: %v", s, canon, err)
		}
		if again := o.String(); again != canon {
			t.Errorf("%q gives %q, then %q", s, canon, again)
		}
	})
}

// evalAll compiles, evaluates, decodes and prints.
func evalAll(t *testing.T, d *Def) {
	t.Helper()
	p, err := d.Compile(testEnv())
	if err != nil {
		var e *SyntaxError
		if !errors.As(err, &e) || e.Caret() == "" {
			t.Fatalf("Compile: %v", err)
		}
		return
	}
	c := testContext()
	c.Entry = p.EvalEntry(c, nil)
	rec, pass := p.Eval(c, nil)
	if !pass {
		return
	}
	vals, err := p.Decode(rec, nil)
	if err != nil {
		t.Fatalf("Decode: %v", err)
	}
	for i, field := range p.Fields() {
		AppendText(nil, field.Type, vals[i], nil)
		AppendJSON(nil, field.Type, vals[i], nil)
	}
}

// FuzzFilter does the same for conditions over a fixed set of fields.
func FuzzFilter(f *testing.F) {
	for _, s := range []string{
		"n == 1", "s ~ \"h*\" && n > 3 || !(i < -5)", "cpu & CPUS{1,2-5}", "d >= 1.5e3", "n.function == work",
		"((n == 1)", "n & 0x10 && comm != 'x'", "s == bare", "!!n==1", "CPUS{", "n == \"", "a == 1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := Parse("p f n=%di:u32 s=+0(+0(%di)):string i=%dx:s64 d=%xmm0:f64 a=+0(%di):u8[2] if " + s)
		if err != nil {
			var e *SyntaxError
			if !errors.As(err, &e) || e.Col < 0 || e.Col > len(e.Input)+1 || e.Caret() == "" {
				t.Errorf("error %+v", err)
			}
			return
		}
		p, err := d.Compile(testEnv())
		if err != nil {
			return
		}
		if p.Filter != nil {
			for i, q := range p.Filter.Preds {
				if q.Target <= i || q.Target > p.Filter.Reject() {
					t.Errorf("%q: predicate %d of %d goes to %d", s, i, len(p.Filter.Preds), q.Target)
				}
			}
		}
		evalAll(t, d)
	})
}

// FuzzParseBoot checks that the boot form gives definitions or an error.
func FuzzParseBoot(f *testing.F) {
	f.Add("p:a f x=%di\n# c\nr:b,g,$retval;-:a\n")
	f.Add("p,f,\"a;b\",(;),{")
	f.Fuzz(func(t *testing.T, s string) {
		defs, err := ParseBoot(s)
		var e *SyntaxError
		if err != nil && (!errors.As(err, &e) || defs != nil) {
			t.Errorf("ParseBoot(%q) = %v, %v", s, defs, err)
		}
	})
}
