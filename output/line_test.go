package output

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/results"
)

func line(t testing.TB, form Form, h *results.Hit) string {
	t.Helper()
	f := Formatter{Form: form}
	text, err := f.Append(nil, h)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTextLine(t *testing.T) {
	s := newScene(t)
	regs := fetch.Regs{}
	regs.GPR[fetch.DI], regs.GPR[fetch.SI], regs.GPR[fetch.AX] = 7, 0x1000, 22
	mem := memory{0x1000: "/etc/\npasswd\x00", 0x2000: "\xff\xfe\x00"}
	work := fmt.Sprintf("work+0x0/0x%x", s.work.Func.Size())
	caller := fmt.Sprintf("caller+0x5/0x%x", s.caller.Func.Size())
	const head = "           redis-43      [002]      1.000002: "
	tests := []struct{ name, def, want string }{
		{"no arguments", "p:ev work", "ev: (" + work + ")"},
		{"numbers", "p:ev work a=%di:s32 b=%di c=%di:u8", "ev: (" + work + ") a=7 b=0x7 c=7"},
		{"text keeps to its line", "p:ev work s=+0(%si):string", "ev: (" + work + `) s="/etc/\npasswd"`},
		{"fault", "p:ev work s=+0(%di):string n=+0(%di):u32", "ev: (" + work + ") s=(fault) n=(fault)"},
		{"array", "p:ev work s=+0(%si):u8[3]", "ev: (" + work + ") s={47,101,116}"},
		{"symbol", fmt.Sprintf(`p:ev work s=\%d:symbol`, s.caller.Addr+1), "ev: (" + work + fmt.Sprintf(") s=caller+0x1/0x%x", s.caller.Func.Size())},
		{"return", "r:back work v=$retval:s32 a=$arg1", "back: (" + caller + " <- work) v=22 a=0x7"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, want := line(t, Text, s.hit(t, tt.def, regs, mem)), head+tt.want+"\n"; got != want {
				t.Errorf("got  %swant %s", got, want)
			}
		})
	}
}

func TestTextLineColumns(t *testing.T) {
	s := newScene(t)
	tests := []struct {
		name     string
		comm     string
		tid, cpu int
		ns       uint64
		want     string
	}{
		{"short", "a", 1, 0, 0, "               a-1       [000]      0.000000: "},
		{"long", "fifteen-letters", 4194304, 255, 123456_000_000_999, " fifteen-letters-4194304 [255]  123456.000000: "},
		{"more of them", "\u009b\x9bé\xc3", 12, 7, 999_999_999, "\\xc2\\x9b\\x9bé\\xc3-12      [007]      0.999999: "},
		{"control characters", "a\nb\x1b[1m", 12, 7, 999_999_999, `     a\nb\x1b[1m-12      [007]      0.999999: `},
		{"empty", "", 12, 7, 99999_000_001_000, "                -12      [007]  99999.000001: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := s.hit(t, "p:ev work", fetch.Regs{}, nil)
			h.Comm, h.TID, h.CPU, h.Time = tt.comm, tt.tid, tt.cpu, tt.ns
			if got := line(t, Text, h); !strings.HasPrefix(got, tt.want+"ev: (") {
				t.Errorf("got  %swant %s", got, tt.want)
			}
		})
	}
}

func TestPlacesWithoutSymbol(t *testing.T) {
	s := newScene(t)
	h := s.hit(t, "r:ev work", fetch.Regs{}, nil)
	h.IP, h.RetIP, h.Func = 0x10, 0x20, ""
	if got := line(t, Text, h); !strings.HasSuffix(got, ": ev: (0x20 <- 0x10)\n") {
		t.Errorf("got %s", got)
	}
	h.Space = nil
	if got := line(t, Text, h); !strings.HasSuffix(got, ": ev: (0x20 <- 0x10)\n") {
		t.Errorf("without a space: %s", got)
	}
	o := object(t, line(t, JSON, h))
	for _, name := range []string{"sym", "off", "ret_sym", "ret_off"} {
		if v, there := o[name]; there {
			t.Errorf("%s is %v", name, v)
		}
	}
	if o["ip"] != "0x10" || o["ret_ip"] != "0x20" {
		t.Errorf("got %v", o)
	}
}

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
		t.Errorf("not one line: %q", text)
	}
	return o
}

func TestJSONLine(t *testing.T) {
	s := newScene(t)
	regs := fetch.Regs{}
	regs.GPR[fetch.DI], regs.GPR[fetch.SI], regs.GPR[fetch.AX] = 7, 0x1000, 1<<63
	h := s.hit(t, `p:ev work a=%di:s32 s=+0(%si):string`, regs, memory{0x1000: "hello\x00"})
	want := fmt.Sprintf(`{"type":"hit","time":1.000002,"group":"kprobes","event":"ev","comm":"redis","pid":41,"tid":43,"cpu":2,`+
		`"ip":"%v","sym":"work","off":0,"args":{"a":7,"s":"hello"}}`+"\n", s.work.Addr)
	if got := line(t, JSON, h); got != want {
		t.Errorf("got  %swant %s", got, want)
	}

	h = s.hit(t, "r:g/back work v=$retval", regs, nil)
	o := object(t, line(t, JSON, h))
	for name, want := range map[string]any{
		"group": "g", "func": "work", "sym": "work", "off": 0.0,
		"ret_ip": (s.caller.Addr + 5).String(), "ret_sym": "caller", "ret_off": 5.0,
	} {
		if o[name] != want {
			t.Errorf("%s is %v, want %v", name, o[name], want)
		}
	}
	if args := o["args"].(map[string]any); args["v"] != "9223372036854775808" {
		t.Errorf("a number beyond 2^53: %v", args["v"])
	}
}

func TestJSONTextThatIsNotUTF8(t *testing.T) {
	s := newScene(t)
	regs := fetch.Regs{}
	regs.GPR[fetch.DI] = 0x3000
	regs.GPR[fetch.SI] = 0x2000
	mem := memory{
		0x1000: "ok\x00", 0x2000: "a\xff\"\x00",
		0x3000: "\x00\x10\x00\x00\x00\x00\x00\x00" + "\x00\x20\x00\x00\x00\x00\x00\x00" + "\x08\x00\x00\x00\x00\x00\x00\x00",
	}
	h := s.hit(t, "p:ev work one=+0(%si):string all=+0(%di):string[3] fine=+0(+0(%di)):string", regs, mem)
	args := object(t, line(t, JSON, h))["args"].(map[string]any)
	want := map[string]any{
		"one": "a\ufffd\"", "one_hex": "61ff22",
		"all": []any{"ok", "a\ufffd\"", nil}, "all_hex": []any{"6f6b", "61ff22", nil},
		"fine": "ok",
	}
	if !reflect.DeepEqual(args, want) {
		t.Errorf("got  %v\nwant %v", args, want)
	}
}

// A definition may have a value of the name that the bytes of a text would have.
func TestJSONTwinOfAnOwnName(t *testing.T) {
	s := newScene(t)
	regs := fetch.Regs{}
	regs.GPR[fetch.SI] = 0x2000
	h := s.hit(t, "p:ev work a=+0(%si):bytes[2] a_hex=%si b=+0(%si):bytes[1]", regs, memory{0x2000: "ok\x00"})
	want := `"args":{"a":"ok","a_hex#2":"6f6b","a_hex":8192,"b":"o","b_hex":"6f"}`
	if got := line(t, JSON, h); !strings.Contains(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestCorruptRecordIsAnError(t *testing.T) {
	s := newScene(t)
	h := s.hit(t, "p:ev work a=%di", fetch.Regs{}, nil)
	h.Data = h.Data[:3]
	f := Formatter{}
	text, err := f.Append([]byte("before"), h)
	if !errors.Is(err, fetch.ErrCorrupt) || string(text) != "before" {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestTraceStopsAtItsLimit(t *testing.T) {
	s := newScene(t)
	h := s.hit(t, "p:ev work", fetch.Regs{}, nil)
	sink := &spy{}
	tr := &Trace{Writer: NewWriter(sink), Limit: 3}
	for i := range 5 {
		err := tr.Hit(h)
		if want := i >= 2; errors.Is(err, results.ErrStop) != want {
			t.Errorf("hit %d: %v", i+1, err)
		}
	}
	if err := tr.Writer.Close(); err != nil {
		t.Fatal(err)
	}
	if text, _ := sink.state(); strings.Count(text, "\n") != 3 || tr.Printed() != 3 {
		t.Errorf("%d hits counted, written:\n%s", tr.Printed(), text)
	}
}

func TestTraceSaysThatTheReaderHasGone(t *testing.T) {
	s := newScene(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	tr := &Trace{Writer: NewWriter(w)}
	if err := tr.Hit(s.hit(t, "p:ev work", fetch.Regs{}, nil)); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	if tr.Printed() != 0 {
		t.Errorf("%d hits printed", tr.Printed())
	}
}

// busy is the line that the guards and benchmarks print: two arguments, one of
// them text.
func busy(t testing.TB) (entry, back *results.Hit) {
	s := newScene(t)
	regs := fetch.Regs{}
	regs.GPR[fetch.DI], regs.GPR[fetch.SI], regs.GPR[fetch.AX] = 7, 0x1000, 22
	mem := memory{0x1000: "/etc/passwd\x00"}
	return s.hit(t, "p:open work dfd=$arg1:s32 path=+0($arg2):string", regs, mem),
		s.hit(t, "r:done work ret=$retval:s32 dfd=$arg1:s32", regs, mem)
}

func TestHitsAllocateNothing(t *testing.T) {
	entry, back := busy(t)
	for _, form := range []Form{Text, JSON} {
		tr := &Trace{Writer: NewWriter(discard{}), Format: Formatter{Form: form}}
		n := testing.AllocsPerRun(200, func() {
			for _, h := range []*results.Hit{entry, back} {
				if err := tr.Hit(h); err != nil {
					t.Fatal(err)
				}
			}
		})
		if n != 0 {
			t.Errorf("form %d: %v allocations for two hits", form, n)
		}
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// What a hit takes of the time that passes, formatted by one CPU and by two.
func benchmarkHit(b *testing.B, form Form) {
	entry, _ := busy(b)
	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprintf("%dcpu", workers), func(b *testing.B) {
			tr := &Trace{Writer: NewWriter(discard{}), Format: Formatter{Form: form}, Workers: workers}
			for b.Loop() {
				if err := tr.Hit(entry); err != nil {
					b.Fatal(err)
				}
			}
			if err := tr.Close(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mlines/s")
		})
	}
}

func BenchmarkTextLine(b *testing.B) { benchmarkHit(b, Text) }

func BenchmarkJSONLine(b *testing.B) { benchmarkHit(b, JSON) }
