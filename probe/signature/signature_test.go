package signature

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"kprobe/fetch"
)

// hit and regs are what functions of the tests may take first.
type (
	hit  struct{ n int }
	regs struct{ n int }
)

var firsts = []First{{Type: reflect.TypeFor[*hit]()}, {Type: reflect.TypeFor[*regs](), Result: true}}

// TestSignatures refuses what C has not.
func TestSignatures(t *testing.T) {
	for _, c := range []struct {
		entry any
		param int
		want  string
	}{
		{nil, 0, "<nil> is not a function"},
		{7, 0, "int is not a function"},
		{(func())(nil), 0, "the func() is nil"},
		{func(int, chan int) {}, 2, "parameter 2 (chan int): C has no such type"},
		{func([]byte) {}, 1, "*[N]T"},
		{func(*regs, [4]int) {}, 2, "*[N]T"},
		{func(struct{ A int }) {}, 1, "by value"},
		{func(*struct{ a int }) {}, 1, "field a of struct { a int } is not exported"},
		{func(*struct{ A *int }) {}, 1, "field A: *int is not a number"},
		{func(*struct{ A [2]struct{ B string } }) {}, 1, "field A: field B: string is not a number"},
		{func(*[2049]byte) {}, 1, "2049 bytes, and at most 2048"},
		{func(*struct{}) {}, 1, "points to nothing"},
		{func(...int) {}, 1, "number of arguments"},
		{func(int) bool { return false }, 0, "only with a *signature.regs"},
		{func(*hit) bool { return false }, 0, "only with a *signature.regs"},
		{func(*regs) int { return 0 }, 0, "one result"},
		{func(*regs) (a, b bool) { return }, 0, "one result"},
		{func(int, *regs) {}, 2, "is not exported"},
		{func(a, b, c, d, e, f, g, h, i float64) {}, 9, "only 8"},
	} {
		_, err := Parse(c.entry, firsts...)
		var se *Error
		if !errors.As(err, &se) || se.Param != c.param || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%T: %v", c.entry, err)
		}
	}
}

// TestArguments has every kind of parameter fetched.
func TestArguments(t *testing.T) {
	for _, c := range []struct {
		entry       any
		source, abi string // "": as source
	}{
		{func() {}, "", ""},
		{func(*hit) {}, "", ""},
		{func(int8, uint16, int32, uint64, uintptr, bool) {},
			" p0_0=$arg1:s8 p1_0=$arg2:u16 p2_0=$arg3:s32 p3_0=$arg4:u64 p4_0=$arg5:u64 p5_0=$arg6:u8", ""},
		{func(*regs, int, float32, string, float64) bool { return true },
			" p1_0=$arg1:s64 p2_0=$arg2:f32 p3_0=+0($arg3):string p4_0=$arg4:f64",
			" p1_0=$arg1:s64 p2_0=$farg1:f32 p3_0=+0($arg2):string p4_0=$farg2:f64"},
		{func(*string) {}, " p0_0=+0($arg1):string", ""},
		{func(*int32) {}, " p0_0=+0($arg1):x8[4]", ""},
		{func(*int64) {}, " p0_0=+0($arg1):x64[1]", ""},
		{func(*[9]byte) {}, " p0_0=+0($arg1):x64[1] p0_1=+8($arg1):x8[1]", ""},
		// 65 words: an array has at most 64.
		{func(int, *[65]uint64) {}, " p0_0=$arg1:s64 p1_0=+0($arg2):x64[64] p1_1=+512($arg2):x64[1]", ""},
		{func(*[2048]byte) {}, " p0_0=+0($arg1):x64[64] p0_1=+512($arg1):x64[64] p0_2=+1024($arg1):x64[64] p0_3=+1536($arg1):x64[64]", ""},
		{func(a, b, c, d, e, f, g, h float64) {},
			" p0_0=$arg1:f64 p1_0=$arg2:f64 p2_0=$arg3:f64 p3_0=$arg4:f64 p4_0=$arg5:f64 p5_0=$arg6:f64 p6_0=$arg7:f64 p7_0=$arg8:f64",
			" p0_0=$farg1:f64 p1_0=$farg2:f64 p2_0=$farg3:f64 p3_0=$farg4:f64 p4_0=$farg5:f64 p5_0=$farg6:f64 p6_0=$farg7:f64 p7_0=$farg8:f64"},
	} {
		f, err := Parse(c.entry, firsts...)
		if err != nil {
			t.Errorf("%T: %v", c.entry, err)
			continue
		}
		if c.abi == "" {
			c.abi = c.source
		}
		if f.Source != c.source || f.ABI != c.abi {
			t.Errorf("%T:\n%s\n%s", c.entry, f.Source, f.ABI)
		}
		if _, err := fetch.Parse("p f" + f.ABI); err != nil {
			t.Errorf("%T: no definition: %v", c.entry, err)
		}
	}
}

type point struct {
	X    int16
	_    [2]byte
	Y    float32
	Name [5]byte
	Ok   bool
}

// TestBind makes arguments of recorded values.
func TestBind(t *testing.T) {
	num := func(n uint64) fetch.Value { return fetch.Value{Int: n} }
	text := func(s string) fetch.Value { return fetch.Value{Bytes: []byte(s)} }
	array := func(ns ...uint64) fetch.Value {
		var v fetch.Value
		for _, n := range ns {
			v.Elems = append(v.Elems, num(n))
		}
		return v
	}
	fault := fetch.Value{Fault: true}
	var got []any
	note := func(a ...any) { got = append(got, a...) }
	h := &hit{7}
	x, y := uint64(0xfffe), uint64(math.Float32bits(1.5))
	for name, c := range map[string]struct {
		entry any
		vals  []fetch.Value
		want  []any // nil: it isn't called
	}{
		"numbers": {func(a int8, b uint16, c int64, d bool, e float64, f float32) { note(a, b, c, d, e, f) },
			[]fetch.Value{num(0xff), num(0xfffe), num(1 << 63), num(2), num(math.Float64bits(-0.5)), num(uint64(math.Float32bits(2.25)))},
			[]any{int8(-1), uint16(0xfffe), int64(math.MinInt64), true, -0.5, float32(2.25)}},
		"a hit first":       {func(h *hit, a int) { note(h.n, a) }, []fetch.Value{num(3)}, []any{7, 3}},
		"a text":            {func(s string) { note(s) }, []fetch.Value{text("abc")}, []any{"abc"}},
		"no text":           {func(s string) { note(s) }, []fetch.Value{fault}, nil},
		"no number":         {func(a int, b uint8) { note(a, b) }, []fetch.Value{num(1), fault}, nil},
		"too few values":    {func(a, b int) { note(a, b) }, []fetch.Value{num(1)}, nil},
		"a text or nil":     {func(s *string) { note(s == nil || *s != "x") }, []fetch.Value{text("x")}, []any{false}},
		"nil for a text":    {func(s *string) { note(s == nil) }, []fetch.Value{fault}, []any{true}},
		"nil for a pointer": {func(p *point, n int) { note(p == nil, n) }, []fetch.Value{fault, num(2)}, []any{true, 2}},
		"nil for a part":    {func(p *point) { note(p == nil) }, []fetch.Value{{Elems: []fetch.Value{num(1), fault}}}, []any{true}},
		"nil for a piece":   {func(p *[2]int64) { note(p == nil) }, []fetch.Value{array(1)}, []any{true}},
		"a struct": {func(p *point, n int) { note(p.X, p.Y, string(p.Name[:]), p.Ok, n) },
			[]fetch.Value{array(x|y<<32, 'n'|'a'<<8|'m'<<16|'e'<<24|'!'<<32|1<<40), num(9)}, []any{int16(-2), float32(1.5), "name!", true, 9}},
		"words and bytes": {func(p *[9]byte) { note(p[0], p[7], p[8]) }, []fetch.Value{array(1 | 8<<56), array(0x1ff)}, []any{byte(1), byte(8), byte(255)}},
	} {
		got = nil
		f, err := Parse(c.entry, firsts...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		call, ok := f.Bind(h, c.vals)
		if ok != (c.want != nil) || ok != (call != nil) {
			t.Errorf("%s: ok is %v", name, ok)
			continue
		}
		if !ok {
			continue
		}
		if len(got) != 0 {
			t.Errorf("%s: it is called before it should be", name)
		}
		if call() {
			t.Errorf("%s: it has no result", name)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestResult: a function that may have a result says whether to skip.
func TestResult(t *testing.T) {
	for _, want := range []bool{true, false} {
		f, err := Parse(func(r *regs, n int) bool { return r.n == n }, firsts...)
		if err != nil || f.First() != reflect.TypeFor[*regs]() {
			t.Fatal(f, err)
		}
		n := uint64(5)
		if !want {
			n = 6
		}
		if call, ok := f.Bind(&regs{5}, []fetch.Value{{Int: n}}); !ok || call() != want {
			t.Errorf("%v, want %v", ok, want)
		}
	}
}
