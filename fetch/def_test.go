package fetch

import (
	"errors"
	"strings"
	"testing"
)

// goodDefs are definitions of every form.
func goodDefs() []string {
	return []string{
		"p work",
		"p:ev work",
		"p:grp/ev work+4 a=%di",
		"p:grp.ev work",
		"p:grp/ work",
		"p:my-grp/ev work",
		"r10:grp/ev libc:open $retval a=$arg1:s32",
		"work",
		"libc:openat dfd=$arg1:s32 path=+0($arg2):string",
		"j work",
		"j:ev libc:work",
		"p /bin/sh:0x4000(0x10) %ax @+16:u8",
		"p main.c:42",
		`p "f(int) const" a=%di`,
		"p ns::f(int, char const*) %di %si",
		"p Arr<int, 3>::get e=((Arr<int, 3>*)this)->e x=Arr<int, 3>::x if e < 3 && x > 1",
		"p add<unsigned long, int *> a=x->y b=*p->q",
		"-:ev",
		"-:grp/ev work+4 a=%di",
		"!p:ev work",
		"p work @S @S+10 @S-10 $stack $stack1 +0(%di) -0(%di) +10($stack) +0(+10(+20($stack))) v=%di v2=%di:x16 $comm:string",
		`p work \1 \-2 s=\"text"`,
		"p work +0(%di):x8[4] +0(%di):string[2] %di:b3@2/8 %di:symbol %di:symstr %di:%pd %xmm3:f32 $farg1",
		"p work a=%di if a > 3 && comm == \"re  dis\"",
		"p work name name->field $arg*",
		"r work a=$retval->len if a > 3",
		"r work $entrytime since=$entrytime:u64 now=$time",
		"p work $pid $tid $cpu $time %orig_ax",
		"p work " + nested(7, "+0(%di)"),
		"p work " + wide(6),
		"p work " + strings.TrimSpace(strings.Repeat("%di ", 128)),
		"p:" + long(63) + "/" + long(63) + " work " + long(32) + "=%di",
		"p work a=@" + strings.Repeat("0", 254),
	}
}

func TestRoundTrip(t *testing.T) {
	for _, text := range goodDefs() {
		t.Run(short(text), func(t *testing.T) { roundTrip(t, text) })
	}
}

// roundTrip checks that the canonical form means the same and is its own
// canonical form.
func roundTrip(t *testing.T, text string) {
	t.Helper()
	d, err := Parse(text)
	if err != nil {
		t.Fatalf("Parse(%q): %v", text, err)
	}
	canon := d.String()
	o, err := Parse(canon)
	if err != nil {
		t.Fatalf("Parse(%q) of %q: %v", canon, text, err)
	}
	if o.String() != canon {
		t.Errorf("%q, then %q", canon, o.String())
	}
	if o.Kind != d.Kind || o.Group != d.Group || o.Event != d.Event || o.Place != d.Place || o.MaxActive != d.MaxActive {
		t.Errorf("%q became %q", text, canon)
	}
	if d.Kind == Delete {
		return
	}
	if err := d.SameShape(o); !isCode(err, SameProbe) {
		t.Errorf("%q and %q: %v, want the same probe", text, canon, err)
	}
}

func isCode(err error, c Code) bool {
	var e *SyntaxError
	return errors.As(err, &e) && e.Code == c
}

func TestCanonicalForm(t *testing.T) {
	for _, c := range []struct{ def, want string }{
		{"p work", "p:kprobes/p_work_0 work"},
		{"work %di", "p:kprobes/p_work_0 work arg1=%di"},
		{"r10:grp/ev   open\t$retval", "r10:grp/ev open arg1=$retval"},
		{"p:ev open%return a=$retval:s32", "r:kprobes/ev open a=$retval:s32"},
		{"p:grp.ev work+0x1a", "p:grp/ev work+26"},
		{"p:ev /bin/sh:16 @+16:u8", "p:kprobes/ev /bin/sh:0x10 arg1=@+16:u8"},
		{"j work", "j:kprobes/j_work_0 work"},
		{"-:ev", "-:ev"},
		{"!r:grp/ev work %di", "-:grp/ev work %di"},
		{`p:ev "a b"  x=%di if  x == 1 `, `p:kprobes/ev "a b" x=%di if x == 1`},
		{"p work name", "p:kprobes/p_work_0 work name=name"},
	} {
		d, err := Parse(c.def)
		if err != nil {
			t.Errorf("Parse(%q): %v", c.def, err)
			continue
		}
		if got := d.String(); got != c.want {
			t.Errorf("%q gives\n%s, want\n%s", c.def, got, c.want)
		}
	}
}

func TestDefaultTypes(t *testing.T) {
	for _, c := range []struct{ arg, want string }{
		{"%di", "x64"}, {"$comm", "string"}, {`\"a"`, "string"}, {"$farg1", "f64"}, {"%xmm0", "x64"},
		{"$pid", "s32"}, {"$cpu", "u32"}, {"$time", "u64"}, {"+0(%di)", "x64"},
		{"+0(%di):string[2]", "string[2]"}, {"%di:b3@2/8", "b3@2/8"}, {"%di:%pD", "%pD"},
		{"%di:char", "char"}, {"%di:symbol", "symbol"}, {"+0(%di):ustring", "ustring"}, {"+0(%di):s16[0x10]", "s16[16]"},
	} {
		d, err := Parse("p f " + c.arg)
		if err != nil {
			t.Errorf("%s: %v", c.arg, err)
			continue
		}
		if got := d.Args[0].Type.String(); got != c.want {
			t.Errorf("%s has type %s, want %s", c.arg, got, c.want)
		}
	}
}
