package book

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"reflect"
	"strings"
	"testing"

	"kprobe/symbols"
)

// a book as sessions write them.
func sample() *Book {
	return &Book{
		PID: 7, Start: 99, Comm: "prog", Command: []string{"prog", "-x"}, Host: "here", Mono: 5, Wall: 6,
		Modules: []Module{{Path: "/bin/prog", BuildID: "abcd", Main: true, Bias: 1 << 40, Maps: []symbols.Mapping{{Start: 1, End: 2, Path: "/bin/prog"}}}},
		Layouts: []Layout{Layout(`{"fixed":8,"fields":[],"args":[]}`)},
		Probes: []Probe{
			{ID: 1, Group: "g", Event: "e", Def: "p:g/e f", Times: []int{0}, Addr: 1 << 63},
			{ID: 1<<32 - 1, Group: "g", Event: "r", Return: true, Def: "r:g/r f", Func: "f"},
		},
	}
}

// headed puts a head before a text, true but for what a test changes.
func headed(text string) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, uint32(len(text)))
	b = le.AppendUint32(b, crc32.Checksum([]byte(text), castagnoli))
	b = le.AppendUint32(b, 1)
	return append(b, text...)
}

// TestBook: what is written is read, and room behind it is not.
func TestBook(t *testing.T) {
	want := sample()
	b, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	n, err := Length(b[:HeadSize])
	if err != nil || n != len(b) {
		t.Errorf("%d bytes, %v; want %d", n, err, len(b))
	}
	got, err := Decode(append(b, make([]byte, 100)...))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if ps, err := got.Programs(); err != nil || len(ps) != 1 || got.Probes[1].Name() != "g/r" {
		t.Errorf("%d programs, %v", len(ps), err)
	}
}

// TestDamaged: a book is whole, or an error that says whether there is one.
func TestDamaged(t *testing.T) {
	good, err := sample().Encode()
	if err != nil {
		t.Fatal(err)
	}
	changed := func(at int, v uint32) []byte {
		b := append([]byte(nil), good...)
		binary.LittleEndian.PutUint32(b[at:], v)
		return b
	}
	many := func(modules, maps int) string {
		b, err := json.Marshal(&Book{Modules: append(make([]Module, modules), Module{Maps: make([]symbols.Mapping, maps)})})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, tt := range []struct {
		name string
		b    []byte
		want error
	}{
		{"nothing", nil, ErrNone},
		{"less than a head", good[:HeadSize-1], ErrNone},
		{"being written", changed(8, 0), ErrNone},
		{"room", make([]byte, 4096), ErrNone},
		{"cut off", good[:len(good)-1], ErrCorrupt},
		{"a head alone", good[:HeadSize], ErrCorrupt},
		{"longer than it is", changed(0, 1<<32-1), ErrCorrupt},
		{"shorter than it is", changed(0, 9), ErrCorrupt},
		{"another sum", changed(4, 0), ErrCorrupt},
		{"changed", changed(20, 0), ErrCorrupt},
		{"no text", headed(""), ErrCorrupt},
		{"no book", headed("[]"), ErrCorrupt},
		{"of other types", headed(`{"pid":"x"}`), ErrCorrupt},
		{"two", headed("{}{}"), ErrCorrupt},
		{"deep", headed(strings.Repeat(`{"layouts":[`, 1<<17)), ErrCorrupt},
		{"a probe without a layout", headed(`{"probes":[{"id":1}]}`), ErrCorrupt},
		{"a layout below the first", headed(`{"layouts":[{}],"probes":[{"layout":-1}]}`), ErrCorrupt},
		{"a layout behind the last", headed(`{"layouts":[{}],"probes":[{"layout":1}]}`), ErrCorrupt},
		{"an id of 33 bits", headed(`{"layouts":[{}],"probes":[{"id":4294967296}]}`), ErrCorrupt},
		{"too many files", headed(many(mostModules, 0)), ErrCorrupt},
		{"too many mappings", headed(many(0, mostMaps+1)), ErrCorrupt},
	} {
		if got, err := Decode(tt.b); !errors.Is(err, tt.want) || got != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	b, err := Decode(headed(`{"layouts":[{"fixed":-1}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if ps, err := b.Programs(); !errors.Is(err, ErrCorrupt) || ps != nil {
		t.Errorf("a layout that can't be: %v", err)
	}
}

// FuzzBook has a book say anything, with a true head or with any: it is one, or an error.
func FuzzBook(f *testing.F) {
	b, err := sample().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, false)
	f.Add(b[HeadSize:], true)
	f.Add([]byte(`{"layouts":[{"fixed":8,"args":[{"slot":0,"size":8,"type":{"Size":8}}],"fields":[{}]}],"probes":[{"id":1,"layout":0}]}`), true)
	f.Fuzz(func(t *testing.T, b []byte, head bool) {
		if head {
			b = headed(string(b))
		}
		got, err := Decode(b)
		if err != nil {
			if !errors.Is(err, ErrNone) && !errors.Is(err, ErrCorrupt) {
				t.Error(err)
			}
			return
		}
		for i := range got.Probes {
			if l := got.Probes[i].Layout; l < 0 || l >= len(got.Layouts) {
				t.Errorf("a probe with layout %d of %d", l, len(got.Layouts))
			}
		}
		if ps, err := got.Programs(); err == nil && len(ps) != len(got.Layouts) {
			t.Errorf("%d programs of %d layouts", len(ps), len(got.Layouts))
		} else if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Error(err)
		}
	})
}
