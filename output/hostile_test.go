package output

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"kprobe/fetch"
	"kprobe/fetch/vars"
	"kprobe/internal/fixture"
	"kprobe/probe/results"
	"kprobe/symbols"
)

// hostile has one of each that must not reach a terminal, and what could end a
// line, a field or a string.
const hostile = "a\x1b[2J\u009b31m\x9b\x07\x00\r\nkprobe: forged\tb\x7f\u0085\u202e\u2066\u2028\u200f\ufeff\U000e0041\xff\xc3" + `"\x, c=1} hitcount: 9`

// harmless reports what is wrong with an output: a character that isn't shown, a
// line too many, JSON that can't be read.
func harmless(t *testing.T, what string, got []byte, lines int, tabs bool) {
	t.Helper()
	if len(got) == 0 {
		t.Errorf("%s: nothing", what)
	}
	for i, r := range string(got) {
		if r == '\n' || tabs && r == '\t' {
			continue
		}
		if _, n := utf8.DecodeRune(got[i:]); !strconv.IsGraphic(r) || r == utf8.RuneError && n == 1 {
			t.Errorf("%s: %U goes out as it is: %q", what, r, got)
			break
		}
	}
	if n := bytes.Count(got, []byte("\n")); n != lines {
		t.Errorf("%s: %d lines, %d of plain names: %s", what, n, lines, got)
	}
	if bytes.HasPrefix(got, []byte("{\"")) {
		for line := range bytes.Lines(got) {
			if !json.Valid(line) {
				t.Errorf("%s: not JSON: %s", what, line)
			}
		}
	}
}

// fill puts text into every string below v.
func fill(v reflect.Value, text string, depth int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Pointer:
		if v.IsNil() && depth > 0 {
			v.Set(reflect.New(v.Type().Elem()))
		}
		if !v.IsNil() {
			fill(v.Elem(), text, depth-1)
		}
	case reflect.Slice:
		if v.Len() == 0 && depth > 0 && v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		}
		for i := range v.Len() {
			fill(v.Index(i), text, depth-1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				fill(f, text, depth-1)
			}
		}
	}
}

// filled makes a T with text in every string.
func filled[T any](text string) *T {
	v := new(T)
	fill(reflect.ValueOf(v).Elem(), text, 6)
	return v
}

// TestEveryOutput: whatever a program calls its functions, files, threads and
// variables, nothing that a terminal obeys comes out, and no line more.
func TestEveryOutput(t *testing.T) {
	listing := func(text string) *results.Listing {
		l := &results.Listing{Name: text, Module: &symbols.Module{Name: text, Path: text}}
		l.Lines = *filled[[]results.Line](text)
		return l
	}
	stats := func(text string) []results.Stats {
		s := *filled[[]results.Stats](text)
		for i := range s {
			s[i].Event.Def = nil
			s[i].Hits, s[i].Missed, s[i].Lost, s[i].Disabled, s[i].Age = 5, 1, 1, true, time.Second
		}
		return s
	}
	each := func(s []results.Stats) (out []Rate) {
		for i := range s {
			out = append(out, Rate{Stats: s[i], PerSecond: 1})
		}
		return out
	}
	source := func(text string) *SourceLines {
		s := filled[SourceLines](text)
		s.From, s.Origin = 1, 1
		for i := range s.Code {
			s.Code[i].Line = i + 1
		}
		return s
	}
	variables := func(text string) *Variables {
		v := filled[Variables](text)
		v.List = append(v.List, vars.Description{Name: text, Type: text, At: text})
		return v
	}
	drawn := func(draw func(b *bytes.Buffer) error) []byte {
		var b bytes.Buffer
		if err := draw(&b); err != nil {
			t.Error(err)
		}
		return b.Bytes()
	}
	joined := func(lines []string, err error) []byte {
		if err != nil {
			t.Error(err)
		}
		return []byte(strings.Join(lines, "\n"))
	}
	calls := func(text string) []Calls {
		c := *filled[[]Calls](text)
		for i := range c {
			c[i].Count = 1
		}
		return c
	}
	for name, out := range map[string]func(text string) []byte{
		"AppendDefinitionJSON": func(s string) []byte { return AppendDefinitionJSON(nil, filled[Definition](s)) },
		"AppendEnd":            func(s string) []byte { return AppendEnd(nil, 1, stats(s)) },
		"AppendError":          func(s string) []byte { return AppendError(nil, s) },
		"AppendFunctionJSON":   func(s string) []byte { return AppendFunctionJSON(nil, filled[Function](s)) },
		"AppendUSDTJSON":       func(s string) []byte { return AppendUSDTJSON(nil, filled[USDT](s)) },
		"AppendFactJSON":       func(s string) []byte { return AppendFactJSON(nil, filled[Fact](s)) },
		"AppendFact": func(s string) []byte {
			f := filled[Fact](s)
			f.Name = "tracer" // kprobe's own
			return AppendFact(nil, f)
		},
		"AppendCalls":     func(s string) []byte { return AppendCalls(nil, calls(s)) },
		"AppendSteps":     func(s string) []byte { return AppendSteps(nil, &calls(s)[0]) },
		"AppendCallsJSON": func(s string) []byte { return AppendCallsJSON(nil, calls(s), 1) },
		"ListingText": func(s string) []byte {
			return drawn(func(b *bytes.Buffer) error { return ListingText(b, listing(s), 0) })
		},
		"AppendListingJSON": func(s string) []byte { return AppendListingJSON(nil, listing(s)) },
		"LiveTable": func(s string) []byte {
			return joined((&LiveTable{Title: s, Rates: each(stats(s)), Total: true, Each: true}).Lines(400, 50))
		},
		"LiveTable of events": func(s string) []byte {
			return joined((&LiveTable{Title: s, Rates: each(stats(s)), Total: true}).Lines(80, 50))
		},
		"LatencyTable":     func(s string) []byte { return joined((&LatencyTable{Title: s, Calls: calls(s)}).Lines(200, 50)) },
		"LatencyTable.All": func(s string) []byte { return joined((&LatencyTable{Title: s, Calls: calls(s)}).All(200)) },
		"AppendLossJSON": func(s string) []byte {
			return AppendLossJSON(nil, &Loss{Event: stats(s)[0].Event}, Clock{}, 0)
		},
		"AppendProfile":       func(s string) []byte { return AppendProfile(nil, stats(s)) },
		"AppendProfileJSON":   func(s string) []byte { return AppendProfileJSON(nil, stats(s)) },
		"AppendRatesJSON":     func(s string) []byte { return AppendRatesJSON(nil, each(stats(s)), 1) },
		"ProfileTable":        func(s string) []byte { return drawn(func(b *bytes.Buffer) error { return ProfileTable(b, stats(s)) }) },
		"AppendSite":          func(s string) []byte { return AppendSite(nil, filled[Site](s)) },
		"AppendSite, waiting": func(s string) []byte { w := filled[Site](s); w.Waiting = true; return AppendSite(nil, w) },
		"AppendSiteWithin":    func(s string) []byte { return AppendSiteWithin(nil, filled[Site](s), 40) },
		"AppendSiteJSON":      func(s string) []byte { return AppendSiteJSON(nil, filled[Site](s)) },
		"VariablesText":       func(s string) []byte { return VariablesText(nil, variables(s)) },
		"AppendVariablesJSON": func(s string) []byte { return AppendVariablesJSON(nil, variables(s)) },
		"SourceLinesText":     func(s string) []byte { return SourceLinesText(nil, source(s)) },
		"SourceLinesJSON":     func(s string) []byte { return AppendSourceLinesJSON(nil, source(s)) },
	} {
		harmless(t, name, out(hostile), bytes.Count(out("plain"), []byte("\n")), name == "SourceLinesText")
	}
}

// hostileScene is a program whose functions and source files have such names.
func hostileScene(t *testing.T) *scene {
	t.Helper()
	fixture.NeedTool(t, "objcopy")
	dir := t.TempDir()
	src, prog := filepath.Join(dir, "prog.c"), filepath.Join(dir, "prog")
	const text = `#line 7 "/src/\033[2J\302\233\n\342\200\256.c"
static inline __attribute__((always_inline)) int inlined(int n) { return n * 3; }
__attribute__((noinline)) int work(int n) { return inlined(n) + 1; }
__attribute__((noinline)) int caller(int n) { return work(n) + 2; }
int main(void) { return caller(0); }
`
	if err := os.WriteFile(src, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	name := strings.NewReplacer("\x00", "", "=", "").Replace(hostile)
	for _, args := range [][]string{
		{"gcc", "-g", "-O1", "-o", prog, src},
		{"objcopy", "--redefine-sym", "work=w" + name, "--redefine-sym", "caller=c" + name, prog, prog + name[:20]},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args[0], err, out)
		}
	}
	plain, err := symbols.OpenFileSpace(prog)
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{}
	for name, site := range map[string]*symbols.Site{"work": &s.work, "caller": &s.caller} {
		sites, err := plain.Resolve(symbols.Place{Symbol: name})
		if err != nil || len(sites) != 1 {
			t.Fatalf("resolve %s: %d places, %v", name, len(sites), err)
		}
		*site = sites[0]
	}
	if s.space, err = symbols.OpenFileSpace(prog + name[:20]); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEveryHit: so do lines, objects and histograms of hits, their values, names
// and stacks.
func TestEveryHit(t *testing.T) {
	text := strings.ReplaceAll(hostile, "\x00", "")
	hit := func(t *testing.T, s *scene, name string) *results.Hit {
		at := strconv.FormatUint(uint64(s.work.Addr), 10)
		h := s.hit(t, `p:ev work s=+0(%si):string b=+0(%si):bytes[12] y=\`+at+`:symbol z=\`+at+`:symstr n=%di c=%di:char w=+0(%si):char[4] stack=4`, fetch.Regs{GPR: [16]uint64{fetch.DI: '"', fetch.SI: 0x1000}}, memory{0x1000: name + "\x00"})
		fields := h.Program.Fields()
		for i := range fields {
			fields[i].Name += name // as parameters by debug information have it
		}
		h.Comm, h.Func, h.Event.Group, h.Event.Name = name, name, name, name
		h.Stack = []symbols.StackFrame{{Addr: s.work.Addr}, {Addr: s.caller.Addr + 5, Call: true}, {Addr: 0x7fff00000000}}
		return h
	}
	outputs := func(t *testing.T, s *scene, name string) map[string][]byte {
		out := map[string][]byte{}
		h := hit(t, s, name)
		for _, returns := range []bool{false, true} {
			h.Event.Return, h.RetIP = returns, s.caller.Addr+5
			h.Event = &results.Event{Def: h.Event.Def, Group: h.Event.Group, Name: h.Event.Name, Return: returns}
			for form, word := range map[Form]string{Text: "line", JSON: "object"} {
				f := Formatter{Form: form, Lines: true}
				b, err := f.Append(nil, h)
				if err != nil {
					t.Fatal(err)
				}
				out[word+" "+strconv.FormatBool(returns)] = b
			}
		}
		h = hit(t, s, name)
		for i := range h.Program.Fields() {
			h.Program.Fields()[i].Name = strings.TrimSuffix(h.Program.Fields()[i].Name, name)
		}
		for _, keys := range []string{"s", "b", "y", "z", "n.sym", "n.sym-offset", "y.sym", "c", "w", "common_comm", "common_pid.execname", "common_stacktrace", "__probe_ip.sym-offset"} {
			spec, err := ParseHist(keys)
			if err != nil {
				t.Fatal(err)
			}
			g := &Histograms{Specs: []*HistSpec{spec}}
			if err := g.Hit(h); err != nil {
				t.Fatal(err)
			}
			out["hist "+keys], out["hist as JSON "+keys] = g.AppendText(nil, nil), g.AppendJSON(nil, nil, 1)
		}
		return out
	}
	want := outputs(t, newScene(t), "plain")
	for name, got := range outputs(t, hostileScene(t), text) {
		harmless(t, name, got, bytes.Count(want[name], []byte("\n")), false)
	}
}

// TestTextReadsBack: a line's texts can be read back byte for byte, and forge no
// field.
func TestTextReadsBack(t *testing.T) {
	s := newScene(t)
	for _, text := range []string{"plain", strings.ReplaceAll(hostile, "\x00", ""), `quote " and \`, `" n=1`, `\x1b`, "\x1b", "日本 🙂", "\xff\xfe", ""} {
		h := s.hit(t, "p:ev work s=+0(%si):string n=%di", fetch.Regs{GPR: [16]uint64{fetch.DI: 7, fetch.SI: 0x1000}}, memory{0x1000: text + "\x00"})
		got := line(t, Text, h)
		_, rest, _ := strings.Cut(got, ") s=")
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			t.Errorf("%q: %s: %v", text, got, err)
			continue
		}
		if back, err := strconv.Unquote(quoted); back != text || err != nil {
			t.Errorf("%q reads back as %q, %v", text, back, err)
		}
		if rest = rest[len(quoted):]; rest != " n=0x7\n" {
			t.Errorf("%q: %q follows", text, rest)
		}
	}
}

// limited is an Env in which texts have so many bytes.
type limited struct {
	noEnv
	n int
}

func (l limited) MaxText() int { return l.n }

// TestCutTexts: a text that is cut says so, in lines, objects and histograms; one
// that is as long as what is shown doesn't. A filter sees the whole text.
func TestCutTexts(t *testing.T) {
	s := newScene(t)
	for _, tt := range []struct {
		n               int
		def, text, json string
	}{
		{5, "s=+0(%si):string", `s="01234"...`, `"args":{"s":"01234"},"cut":["s"]}`},
		{9, "s=+0(%si):string", `s="012345678"...`, `"args":{"s":"012345678"},"cut":["s"]}`},
		{10, "s=+0(%si):string", `s="0123456789"`, `"args":{"s":"0123456789"}}`},
		{0, "s=+0(%si):string", `s="0123456789"`, `"args":{"s":"0123456789"}}`},
		{4095, "s=+0(%si):string", `s="0123456789"`, `"args":{"s":"0123456789"}}`},
		{5, `s=+0(%si):string if s == "0123456789"`, `s="01234"...`, `"args":{"s":"01234"},"cut":["s"]}`},
		{5, `s=+0(%si):string if s ~ "*789"`, `s="01234"...`, `"args":{"s":"01234"},"cut":["s"]}`},
		{5, "b=+0(%si):bytes[10]", `b="01234"...`, `"args":{"b":"01234","b_hex":"3031323334"},"cut":["b"]}`},
		{5, "b=+0(%si):bytes[5]", `b="01234"`, `"args":{"b":"01234","b_hex":"3031323334"}}`},
		{5, "a=+0(%dx):string[2]", `a={"01234"...,"x"}`, `"args":{"a":["01234","x"]},"cut":["a[0]"]}`},
		{1, "c=$comm n=%di", `c="redis" n=0x7`, `"args":{"c":"redis","n":7}}`},
	} {
		d, err := fetch.Parse("p:ev work " + tt.def)
		if err != nil {
			t.Fatal(err)
		}
		p, err := d.Compile(limited{n: tt.n})
		if err != nil {
			t.Fatal(err)
		}
		regs := &fetch.Regs{GPR: [16]uint64{fetch.DI: 7, fetch.SI: 0x1000, fetch.DX: 0x2000}}
		mem := memory{0x1000: "0123456789\x00", 0x2000: "\x00\x10\x00\x00\x00\x00\x00\x00\x00\x30\x00\x00\x00\x00\x00\x00", 0x3000: "x\x00"}
		data, pass := p.Eval(&fetch.Context{Regs: regs, Mem: mem, Comm: "redis"}, nil)
		if !pass {
			t.Errorf("%s: filtered", tt.def)
			continue
		}
		h := &results.Hit{Event: &results.Event{Def: d, Group: d.Group, Name: d.Event}, Program: p, Data: data, Space: s.space, IP: s.work.Addr}
		if got := line(t, Text, h); !strings.HasSuffix(got, ") "+tt.text+"\n") {
			t.Errorf("-s %d %s prints %s, want %s", tt.n, tt.def, got, tt.text)
		}
		if got := line(t, JSON, h); !strings.HasSuffix(got, tt.json+"\n") {
			t.Errorf("-s %d %s as JSON: %s, want %s", tt.n, tt.def, got, tt.json)
		}
	}
}
