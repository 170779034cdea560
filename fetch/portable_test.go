package fetch

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"testing"

	"kprobe/symbols"
	"kprobe/symbols/unwind"
)

// written is the layout of a program's records as it is written down, with a record.
type written struct {
	prog        *Program
	layout, rec []byte
}

func layoutsAndRecords(t testing.TB) (out []written) {
	t.Helper()
	for _, text := range []string{
		"p f", "p f n=$arg1 m=$arg2:u8 s=@S:string b=%bx:b3@4/32", "r f v=$retval:symbol c=$comm", "p f a=@S:x16[3] l=+8(%sp):ustring x=%ax:char",
	} {
		d, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		p, err := d.Compile(testEnv())
		if err != nil {
			t.Fatal(err)
		}
		c := testContext()
		c.Entry = p.EvalEntry(c, nil)
		rec, pass := p.Eval(c, nil)
		b, err := p.Portable()
		if err != nil || !pass {
			t.Fatal(err, pass)
		}
		out = append(out, written{p, b, rec})
	}
	return out
}

// TestPortable: a record says the same by its layout as by the program that made it.
func TestPortable(t *testing.T) {
	for _, x := range layoutsAndRecords(t) {
		p, err := FromPortable(x.layout)
		if err != nil {
			t.Fatal(err)
		}
		want, err := x.prog.Decode(x.rec, nil)
		if err != nil {
			t.Fatal(err)
		}
		have, err := p.Decode(x.rec, nil)
		if err != nil || !reflect.DeepEqual(have, want) {
			t.Errorf("%s: %+v, %v, want %+v", x.layout, have, err, want)
		}
		if !reflect.DeepEqual(p.Fields(), x.prog.Fields()) {
			t.Errorf("%s: fields %+v, want %+v", x.layout, p.Fields(), x.prog.Fields())
		}
	}
}

// TestPortableForged: numbers of a layout that lie outside its records are refused, the
// largest that there are, too.
func TestPortableForged(t *testing.T) {
	const most = math.MaxInt
	good := func() *portable {
		return &portable{Fixed: 64, Fields: []Field{{}}, Args: []portableArg{{Type: Type{Size: 8}, Size: 8, FaultBit: -1}}}
	}
	try := func(p *portable) error {
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		_, err = FromPortable(b)
		return err
	}
	if err := try(good()); err != nil {
		t.Fatal(err)
	}
	for name, forge := range map[string]func(*portable){
		"slot":          func(p *portable) { p.Args[0].Slot = most },
		"slot's end":    func(p *portable) { p.Args[0].Slot = 57 },
		"size":          func(p *portable) { p.Args[0].Size = most },
		"slot and size": func(p *portable) { p.Args[0].Slot, p.Args[0].Size = most, most },
		"fault bit":     func(p *portable) { p.Args[0].FaultBit = most },
		"fixed":         func(p *portable) { p.Fixed = most },
		"no arguments":  func(p *portable) { p.Args = nil },
		"stack's slot":  func(p *portable) { p.Stack = &StackCopy{Slot: most} },
		"stack's bytes": func(p *portable) { p.Stack = &StackCopy{Bytes: most} },
		"stack's both":  func(p *portable) { p.Stack = &StackCopy{Slot: most - 200, Bytes: most} },
		"stack's end":   func(p *portable) { p.Stack = &StackCopy{Slot: 8} },
		"stack's depth": func(p *portable) { p.Stack = &StackCopy{Frames: -1} },
	} {
		p := good()
		forge(p)
		if err := try(p); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzPortable has a layout say anything, and a record hold anything: what the layout's
// check lets through decodes, or is an error, and nothing is read outside the record.
func FuzzPortable(f *testing.F) {
	for _, x := range layoutsAndRecords(f) {
		f.Add(x.layout, x.rec)
	}
	f.Add([]byte(`{"fixed":1000,"fields":[],"args":[],"stack":{"Slot":8,"Bytes":256,"Frames":9}}`), make([]byte, 1000))
	f.Fuzz(func(t *testing.T, layout, rec []byte) {
		p, err := FromPortable(layout)
		if err != nil {
			return
		}
		var mem unwind.Stack
		if _, ok := p.Unwind(rec, symbols.Addr(1), &mem); ok && len(mem.Bytes)+len(mem.More) > len(rec) {
			t.Error("a stack larger than its record")
		}
		_, _ = p.Decode(rec, nil)
	})
}
