package fetch

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"kprobe/symbols"
)

// typed parses a type's name.
func typed(t *testing.T, s string) Type {
	t.Helper()
	return mustParse(t, "p f a=+0(%di):"+s).Args[0].Type
}

func TestValues(t *testing.T) {
	sym := testEnv()
	minus := func(n int64) uint64 { return uint64(-n) }
	for _, c := range []struct {
		typ        string
		v          Value
		text, json string
	}{
		{"u8", Value{Int: 255}, "255", "255"},
		{"s8", Value{Int: minus(1)}, "-1", "-1"},
		{"x16", Value{Int: 0xbeef}, "0xbeef", "48879"},
		{"x64", Value{}, "0x0", "0"},
		{"u64", Value{Int: 1 << 53}, "9007199254740992", "9007199254740992"},
		{"u64", Value{Int: 1<<53 + 1}, "9007199254740993", `"9007199254740993"`},
		{"x64", Value{Int: math.MaxUint64}, "0xffffffffffffffff", `"18446744073709551615"`},
		{"s64", Value{Int: minus(1 << 53)}, "-9007199254740992", "-9007199254740992"},
		{"s64", Value{Int: minus(1<<53 + 1)}, "-9007199254740993", `"-9007199254740993"`},
		{"s64", Value{Int: 1 << 63}, "-9223372036854775808", `"-9223372036854775808"`},
		{"b3@1/8", Value{Int: 5}, "5", "5"},
		{"char", Value{Int: 'x'}, "'x'", `"x"`},
		{"char", Value{Int: 0}, `'\x00'`, `"\u0000"`},
		{"char", Value{Int: '"'}, `'"'`, `"\""`},
		{"f32", Value{Int: uint64(math.Float32bits(0.1))}, "0.1", "0.1"},
		{"f64", Value{Int: math.Float64bits(1e21)}, "1e+21", "1e+21"},
		{"f64", Value{Int: math.Float64bits(math.NaN())}, "NaN", `"NaN"`},
		{"f64", Value{Int: math.Float64bits(math.Inf(-1))}, "-Inf", `"-Inf"`},
		{"string", Value{Bytes: []byte("a\"b\\c")}, `"a\"b\\c"`, `"a\"b\\c"`},
		{"string", Value{Bytes: []byte("cut"), Truncated: true}, `"cut"...`, `"cut"`},
		{"char", Value{Int: '\''}, `'\''`, `"'"`},
		{"char", Value{Int: '\\'}, `'\\'`, `"\\"`},
		{"string", Value{Bytes: []byte("\n\t\r\x00\x7f")}, `"\n\t\r\x00\x7f"`, `"\n\t\r\u0000\u007f"`},
		{"string", Value{Bytes: []byte("\u20ac\xff!")}, "\"\u20ac\\xff!\"", "\"\u20ac\\ufffd!\""},
		{"string", Value{}, `""`, `""`},
		{"string", Value{Fault: true}, "(fault)", "null"},
		{"u32", Value{Fault: true}, "(fault)", "null"},
		{"symbol", Value{Int: 0x1004}, "work+0x4/0x100", `"work+0x4/0x100"`},
		{"symbol", Value{Int: 0x99}, "0x99", `"0x99"`},
		{"u8[2]", Value{Elems: []Value{{Int: 1}, {Int: 2}}}, "{1,2}", "[1,2]"},
		{"u8[2]", Value{Fault: true}, "(fault)", "null"},
		{"string[2]", Value{Elems: []Value{{Bytes: []byte("a")}, {Fault: true}}}, `{"a",(fault)}`, `["a",null]`},
	} {
		t.Run(c.typ+" "+c.text, func(t *testing.T) {
			typ := typed(t, c.typ)
			if got := string(AppendText([]byte("> "), typ, c.v, sym)); got != "> "+c.text {
				t.Errorf("text %s, want %s", got, c.text)
			}
			got := string(AppendJSON([]byte("> "), typ, c.v, sym))
			if got != "> "+c.json {
				t.Errorf("JSON %s, want %s", got, c.json)
			}
			if !json.Valid([]byte(got[2:])) {
				t.Errorf("not JSON: %s", got)
			}
		})
	}
	if got := string(AppendText(nil, typed(t, "symbol"), Value{Int: 0x1004}, nil)); got != "0x1004" {
		t.Errorf("without names: %s", got)
	}
	for name, want := range map[string]string{
		`"x`: `"\"x+0x4/0x8"`, `operator"" _km`: `"operator\"\" _km+0x4/0x8"`, `a\b`: `"a\\b+0x4/0x8"`, "caf\u00e9": `"caf` + "\u00e9" + `+0x4/0x8"`,
	} {
		if got := string(AppendJSON([]byte("> "), typed(t, "symbol"), Value{Int: 0x1004}, named(name))); got != "> "+want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// named is a Symbolizer that has one name for everything.
type named string

func (n named) SymbolAt(symbols.Addr) (name string, off, size uint64, ok bool) {
	return string(n), 4, 8, true
}

// TestDecodeHostile gives Decode every truncation of a record and every
// damaged text word: it must answer with values inside the record or
// ErrCorrupt.
func TestDecodeHostile(t *testing.T) {
	p, err := mustParse(t, `p f +0(+0(%di)):string +0(%di):string[2] +8(%di):x8[5] $comm %di`).Compile(nil)
	if err != nil {
		t.Fatal(err)
	}
	rec, _ := p.Eval(testContext(), nil)
	want, err := p.Decode(rec, nil)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for n := range len(rec) {
		vals, err := p.Decode(rec[:n], nil)
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d of %d bytes: %v, %v", n, len(rec), vals, err)
		}
		total += len(vals)
	}
	if total == 0 {
		t.Error("no truncation left a value")
	}
	for at := range p.Fixed {
		for _, b := range []byte{0, 1, 0x7f, 0x80, 0xff} {
			bad := append([]byte(nil), rec...)
			bad[at] = b
			if _, err := p.Decode(bad, nil); err != nil && !errors.Is(err, ErrCorrupt) {
				t.Errorf("byte %d = %#x: %v", at, b, err)
			}
		}
	}
	again, err := p.Decode(append(rec, 1, 2, 3), make([]Value, 1, 3))
	if err != nil || len(again) != len(want) || string(again[0].Bytes) != "hello" {
		t.Errorf("with padding: %v, %v", again, err)
	}
}

// TestHostileNames: names of debug information go out as they can be shown.
func TestHostileNames(t *testing.T) {
	const name = "a\x1b[2J\n\u202e\u009b\xff\""
	typ := Type{Base: Struct, Size: 8, Layout: &Layout{Members: []Member{
		{Name: name, Type: Type{Base: Unsigned, Size: 4, Layout: &Layout{Enum: []Enumerator{{Name: name, Value: 1}}}}},
		{Name: name + "2", Off: 4, Type: Type{Base: Unsigned, Size: 4, Layout: &Layout{Flags: true, Enum: []Enumerator{{Name: name, Value: 1}, {Name: name, Value: 2}}}}},
	}}}
	v := Value{Elems: []Value{{Int: 1}, {Int: 7}}}
	const shown = `a\x1b[2J\n\xe2\x80\xae\xc2\x9b\xff"`
	if got, want := string(AppendText(nil, typ, v, nil)), "{"+shown+"="+shown+","+shown+"2="+shown+"|"+shown+"|0x4}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	const inJSON = `a\u001b[2J\n\u202e\u009b\ufffd\"`
	if got, want := string(AppendJSON(nil, typ, v, nil)), `{"`+inJSON+`":"`+inJSON+`","`+inJSON+`2":"`+inJSON+"|"+inJSON+`|0x4"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
