package fetch

import (
	"testing"

	"kprobe/symbols"
)

// TestWatchPlaces: what is watched is parsed as it is meant, named, and written so that
// it is read back.
func TestWatchPlaces(t *testing.T) {
	for _, c := range []struct {
		def, event string
		want       symbols.Place
	}{
		{"w w@counter", "w_counter", symbols.Place{Access: "w", Symbol: "counter"}},
		{"w @counter:8", "w_counter", symbols.Place{Access: "rw", Symbol: "counter", Length: 8}},
		{"w:ev r@counter+16:2", "ev", symbols.Place{Access: "r", Symbol: "counter", Offset: 16, Length: 2}},
		{"w rw@counter-8", "w_counter__8", symbols.Place{Access: "rw", Symbol: "counter", Offset: -8}},
		{"w w@libc:environ", "w_environ", symbols.Place{Access: "w", Module: "libc", Symbol: "environ"}},
		{"w w@/usr/lib/x.so:environ:8", "w_environ", symbols.Place{Access: "w", Module: "/usr/lib/x.so", Symbol: "environ", Length: 8}},
		{"w w@0x1000:4", "w_0x1000", symbols.Place{Access: "w", Value: 0x1000, Length: 4}},
		{"w:later w@-1:8", "later", symbols.Place{Access: "w", Value: symbols.NoData, Length: 8}},
		{"w w@server.port", "w_server_port", symbols.Place{Access: "w", Symbol: "server.port"}},
		{"w w@ptr->list[3]:1", "w_ptr__list_3_", symbols.Place{Access: "w", Symbol: "ptr->list[3]", Length: 1}},
		{"w w@*ptr", "w__ptr", symbols.Place{Access: "w", Symbol: "*ptr"}},
		{"w w@ns::value:4", "w_ns__value", symbols.Place{Access: "w", Symbol: "ns::value", Length: 4}},
		{"w w@m:ns::value", "w_ns__value", symbols.Place{Access: "w", Module: "m", Symbol: "ns::value"}},
		{"w w@state.0", "w_state_0", symbols.Place{Access: "w", Symbol: "state.0"}},
	} {
		d, err := Parse(c.def)
		if err != nil {
			t.Errorf("%s: %v", c.def, err)
			continue
		}
		c.want.Kind = symbols.PlaceData
		if d.Kind != Watch || d.Place != c.want || d.Event != c.event {
			t.Errorf("%s: %v %s %+v, want %s %+v", c.def, d.Kind, d.Event, d.Place, c.event, c.want)
		}
		back, err := Parse(d.String())
		if err != nil || back.Place != d.Place || back.Kind != Watch {
			t.Errorf("%s: %q is read back as %+v, %v", c.def, d.String(), back, err)
		}
	}
	for _, bare := range []string{"w1", "w::f", "write", "w@"} {
		if d, err := Parse(bare); err == nil && d.Kind != Entry {
			t.Errorf("%s is a %v", bare, d.Kind)
		}
	}
	d, err := Parse("-:g/ev w@counter:8")
	if err != nil || d.Kind != Delete || d.Place.Kind != symbols.PlaceData {
		t.Errorf("deletion: %+v, %v", d, err)
	}
}

// TestWatchValues: what a watchpoint knows of an access is evaluated, and a fault where
// it doesn't know.
func TestWatchValues(t *testing.T) {
	d, err := Parse("w:ev w@x a=$addr old=$old:s32 new=$value:u8 deep=+8($addr):u16 v=$value if new > 4")
	if err != nil {
		t.Fatal(err)
	}
	prog, err := d.Compile(nil)
	if err != nil {
		t.Fatal(err)
	}
	mem := fakeMemory{}
	mem[0] = new([4096]byte)
	mem[0][8+1] = 1
	show := func(w *Watched) string {
		rec, pass := prog.Eval(&Context{Regs: &Regs{}, Mem: mem, Watched: w}, nil)
		if !pass {
			return "filtered"
		}
		vals, err := prog.Decode(rec, nil)
		if err != nil {
			t.Fatal(err)
		}
		var out []byte
		for i, f := range prog.Fields() {
			out = append(AppendText(append(append(out, f.Name...), '='), f.Type, vals[i], nil), ' ')
		}
		return string(out)
	}
	for _, c := range []struct {
		w    Watched
		want string
	}{
		{Watched{Addr: 0, Value: 5, Old: 0xfffffffe, HasValue: true, HasOld: true}, "a=0x0 old=-2 new=5 deep=256 v=0x5 "},
		{Watched{Addr: 0, Value: 5, HasValue: true}, "a=0x0 old=(fault) new=5 deep=256 v=0x5 "},
		{Watched{Addr: 0, Value: 3, HasValue: true}, "filtered"},
		{Watched{Addr: 0x1000}, "filtered"},
	} {
		if got := show(&c.w); got != c.want {
			t.Errorf("%+v: %s, want %s", c.w, got, c.want)
		}
	}
}
