package vars

import (
	"testing"

	"kprobe/fetch"
)

// TestWithout: a text whose length is nowhere, and an enum whose tag is, have no value,
// whatever else of them there is.
func TestWithout(t *testing.T) {
	text := fetch.Type{Base: fetch.String, Size: 8, Layout: &fetch.Layout{Name: "&str", Len: 8}}
	number := fetch.Type{Base: fetch.Unsigned, Size: 1}
	enum := fetch.Type{Base: fetch.Hex, Size: 1, Count: 2, Layout: &fetch.Layout{Name: "E", Switch: 1, Members: []fetch.Member{
		{Name: "discriminant", Type: number}, {Name: "V", Off: 1, Type: number, Case: true, Cases: []uint64{0}}}}}
	outer := fetch.Type{Base: fetch.Hex, Size: 1, Count: 3, Layout: &fetch.Layout{Name: "S", Members: []fetch.Member{{Name: "n", Type: number}, {Name: "e", Off: 1, Type: enum}}}}
	for _, c := range []struct {
		name    string
		of      fetch.Type
		missing piece
		gone    bool
	}{
		{"text", text, piece{off: 8, size: 8}, true},
		{"all of a text", text, piece{off: 16, size: 8}, false},
		{"tag", enum, piece{off: 0, size: 1}, true},
		{"variant", enum, piece{off: 1, size: 1}, false},
	} {
		out, _ := without(c.of, 0, &pieceList{missing: []piece{c.missing}})
		if got := out.Layout.Gone != ""; got != c.gone {
			t.Errorf("%s: gone is %v", c.name, got)
		}
	}
	out, some := without(outer, 0, &pieceList{missing: []piece{{off: 1, size: 1}}})
	if !some || out.Layout.Members[1].Type.Layout.Gone == "" {
		t.Errorf("an enum in a structure has a value without its tag: %v", out.Layout.Members[1].Type.Layout)
	}
}
