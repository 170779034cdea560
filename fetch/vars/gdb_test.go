package vars

import (
	"bufio"
	"compress/zlib"
	"debug/elf"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// stop is what gdb saw at one stop (testdata/dwarf_dump.py).
type stop struct {
	PC, Bias, Func, FS string
	Inline             bool
	GPR                []string
	XMM                [][2]string
	Vars               map[string]*seen
	Memory             []struct{ At, Bytes string }

	mem map[uint64][]byte
}

// partly matches errors that name a part to fetch instead.
var partly = regexp.MustCompile(`: fetch (its members|an element|single elements|a part|that\b)`)

// seen is a value as gdb has it.
type seen struct {
	Gone, Other, Arg bool
	Int              *string
	Float            *string
	Text             *string
	List             []*seen
	Struct           map[string]*seen
	Error            string
	Shown            json.RawMessage
}

func number(s string) uint64 {
	v, _ := strconv.ParseUint(s, 10, 64)
	return v
}

// unpack makes the memory readable.
func (s *stop) unpack() error {
	s.mem = map[uint64][]byte{}
	for _, m := range s.Memory {
		r, err := zlib.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(m.Bytes)))
		if err != nil {
			return err
		}
		if s.mem[number(m.At)], err = io.ReadAll(r); err != nil {
			return err
		}
	}
	return nil
}

// ReadMemory reads what gdb dumped.
func (s *stop) ReadMemory(b []byte, at symbols.Addr) (int, error) {
	if s.mem == nil {
		if err := s.unpack(); err != nil {
			return 0, err
		}
	}
	for lo, m := range s.mem {
		if uint64(at) >= lo && uint64(at)-lo < uint64(len(m)) {
			if n := copy(b, m[uint64(at)-lo:]); n < len(b) {
				return n, errors.New("past the end of a dump")
			}
			return len(b), nil
		}
	}
	return 0, errors.New("not dumped")
}

// unreadable reports a string of Go's that is no string yet: its variable has
// its place already, and what the stack held there before.
func (s *stop) unreadable(w *seen) bool {
	at, n := w.Struct["str"], w.Struct["len"]
	if at == nil || n == nil || at.Int == nil || n.Int == nil {
		return false
	}
	size := int64(number(*n.Int))
	if size < 0 {
		return true
	}
	_, err := s.ReadMemory(make([]byte, min(size, fetch.MaxString)), symbols.Addr(number(*at.Int)))
	return err != nil
}

func (s *stop) context() *fetch.Context {
	regs := &fetch.Regs{IP: number(s.PC), FSBase: number(s.FS)}
	for i, v := range s.GPR {
		regs.GPR[i] = number(v)
	}
	var xmm fetch.Vector
	for i, v := range s.XMM {
		binary.LittleEndian.PutUint64(xmm[i][:], number(v[0]))
		binary.LittleEndian.PutUint64(xmm[i][8:], number(v[1]))
	}
	return &fetch.Context{Regs: regs, Mem: s, Vector: func() (*fetch.Vector, error) { return &xmm, nil }}
}

// runGDB stops a program at addresses of its file.
func runGDB(t *testing.T, prog string, at []symbols.Vaddr, rounds int, exprs []string) []*stop {
	t.Helper()
	gdb := fixture.NeedTool(t, "gdb")
	dir := t.TempDir()
	var list strings.Builder
	for _, v := range at {
		fmt.Fprintf(&list, "%x\n", uint64(v))
	}
	stops, out := filepath.Join(dir, "stops"), filepath.Join(dir, "out")
	if err := os.WriteFile(stops, []byte(list.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(prog)
	if err != nil {
		t.Fatal(err)
	}
	pie := "0"
	if f.Type == elf.ET_DYN {
		pie = "1"
	}
	f.Close()
	cmd := exec.Command(gdb, "-nx", "-batch", "-x", filepath.Join(fixture.Root(), "testdata", "dwarf_dump.py"), "--args", prog, strconv.Itoa(rounds))
	cmd.Env = append(os.Environ(), "DUMP_STOPS="+stops, "DUMP_OUT="+out, "DUMP_PIE="+pie, "DUMP_ROUNDS="+strconv.Itoa(rounds), "DEBUGINFOD_URLS=",
		"DUMP_EXPRESSIONS="+strings.Join(exprs, ";"))
	text, err := cmd.CombinedOutput()
	r, oerr := os.Open(out)
	if oerr != nil {
		t.Fatalf("gdb: %v, %v\n%s", err, oerr, text)
	}
	defer r.Close()
	var all []*stop
	for d := json.NewDecoder(bufio.NewReader(r)); d.More(); {
		s := &stop{}
		if err := d.Decode(s); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		t.Fatalf("gdb saw no stop: %v\n%s", err, text)
	}
	return all
}

// tally counts how the comparison came out.
type tally struct{ agree, gone, differ, weak, caller int }

func (c *tally) add(o tally) {
	c.agree += o.agree
	c.gone += o.gone
	c.differ += o.differ
	c.weak += o.weak
	c.caller += o.caller
}

// evaluate records one variable at a stop with the interpreter.
func evaluate(s *stop, v fetch.Variable) (fetch.Type, fetch.Value, error) {
	d, err := fetch.Parse("p f x=v")
	if err != nil {
		return fetch.Type{}, fetch.Value{}, err
	}
	prog, err := d.Compile(oneVariable{v})
	if err != nil {
		return fetch.Type{}, fetch.Value{}, err
	}
	rec, ok := prog.Eval(s.context(), nil)
	if !ok {
		return fetch.Type{}, fetch.Value{}, errors.New("not recorded")
	}
	vals, err := prog.Decode(rec, nil)
	if err != nil {
		return fetch.Type{}, fetch.Value{}, err
	}
	return prog.Fields()[0].Type, vals[0], nil
}

// oneVariable is an Env that knows one variable.
type oneVariable struct{ v fetch.Variable }

func (oneVariable) AtEntry() bool { return true }
func (oneVariable) Data(string, string) (symbols.Addr, uint64, error) {
	return 0, 0, symbols.ErrNoSymbol
}
func (oneVariable) FileOffset(symbols.Off) (symbols.Addr, error) { return 0, symbols.ErrNotMapped }
func (e oneVariable) Variable(string) (fetch.Variable, error)    { return e.v, nil }
func (oneVariable) Parameters() ([]fetch.Variable, error)        { return nil, fetch.ErrNoDebugInfo }

// latin1 is text up to its NUL as bytes: the script writes each as a character.
func latin1(s string) string {
	var b []byte
	for _, r := range s {
		if r == 0 {
			break
		}
		b = append(b, byte(r))
	}
	return string(b)
}

// same compares a recorded value with gdb's; "" is agreement. With live, gdb's is that of a program as it runs,
// where pointers may lead nowhere, texts may be longer than is recorded, and the script leaves elements out.
func same(t fetch.Type, v fetch.Value, w *seen, live bool) string {
	text := string(fetch.AppendText(nil, t, v, nil))
	switch {
	case live && v.Fault && t.IsText() && w.Int != nil && w.Text == nil:
		// A null pointer, or one that leads nowhere: gdb has no text either.
	case v.Fault:
		return "fault"
	case live && v.Address && w.Int != nil:
		if v.Int != number(*w.Int) {
			return fmt.Sprintf("%s, want %s", text, *w.Int)
		}
	case w.Struct != nil && t.IsText() && w.Struct["vec"] != nil:
		// Rust's String, whose bytes the script takes for numbers.
		if n := w.Struct["vec"].Struct["len"]; n == nil || n.Int == nil || uint64(len(v.Bytes)) != number(*n.Int) {
			return fmt.Sprintf("%s, want %s", text, describe(w))
		}
	case w.Struct != nil && t.IsText():
		for _, name := range [...]string{"_M_dataplus", "_M_p", "str", "data_ptr"} {
			if m := w.Struct[name]; m != nil {
				if w = m; m.Struct == nil {
					break
				}
			}
		}
		// gdb stops at a NUL, and runs on to one.
		have, _, _ := strings.Cut(string(v.Bytes), "\x00")
		if len(v.Bytes) == 0 && w.Text == nil { // an empty one that points nowhere
			return ""
		}
		if w.Text == nil || !strings.HasPrefix(latin1(*w.Text), have) || len(v.Bytes) == 0 && *w.Text != "" {
			return fmt.Sprintf("%s, want %s", text, describe(w))
		}
	case w.Text != nil && (t.IsText() || t.Layout != nil && t.Layout.Text):
		want := latin1(*w.Text)
		if live && v.Truncated {
			want = want[:min(len(want), len(v.Bytes))]
		}
		if string(v.Bytes) != want {
			return fmt.Sprintf("%s, want %q", text, want)
		}
	case w.Struct != nil && t.Layout != nil:
		for i, m := range t.Layout.Members {
			if sub := w.Struct[m.Name]; sub != nil && !sub.Gone && !sub.Other {
				if why := same(m.Type, v.Elems[i], sub, live); why != "" {
					return m.Name + ": " + why
				}
			}
		}
	case w.List != nil:
		for i := range min(len(v.Elems), len(w.List)) {
			if live && (w.List[i].Gone || w.List[i].Other) {
				continue
			}
			elem := t.Elem()
			if t.Layout != nil && t.Layout.Members != nil {
				elem = t.Layout.Members[i].Type
			}
			if why := same(elem, v.Elems[i], w.List[i], live); why != "" {
				return fmt.Sprintf("[%d]: %s", i, why)
			}
		}
	case w.Float != nil:
		f, _ := strconv.ParseFloat(*w.Float, 64)
		got := math.Float64frombits(v.Int)
		if t.Size == 4 {
			got = float64(math.Float32frombits(uint32(v.Int)))
		}
		if got != f && !(math.IsNaN(got) && math.IsNaN(f)) {
			return fmt.Sprintf("%v, want %v", got, f)
		}
	case w.Int != nil:
		want := number(*w.Int)
		if t.Size < 8 && t.BitWidth == 0 {
			want &= 1<<(8*t.Size) - 1
		}
		got := v.Int
		if t.Size < 8 && t.BitWidth == 0 {
			got &= 1<<(8*t.Size) - 1
		}
		if t.IsText() {
			return "text, want a number"
		}
		if got != want {
			return fmt.Sprintf("%#x, want %#x", got, want)
		}
	default:
		return "gdb has no comparable value"
	}
	return ""
}

// leavesOut reports a variable of whose pieces its location leaves some out, which
// the calling convention tells.
func leavesOut(scope *Scope, text string) (some bool) {
	root := strings.TrimLeft(text, "*(")
	if i := strings.IndexAny(root, ".-["); i > 0 {
		root = root[:i]
	}
	_ = scope.read(func(f *frame) error {
		if e, ok := f.name(root); ok {
			p, err := f.located(&e)
			some = err == nil && f.incomplete(&e, p)
		}
		return nil
	})
	return some
}

// siteOf is where a stop is. The Space is of the file; the process has it elsewhere.
func siteOf(t *testing.T, space *symbols.Space, s *stop) symbols.Site {
	t.Helper()
	at := symbols.Addr(number(s.PC) - number(s.Bias))
	sites, err := space.Resolve(symbols.Place{Kind: symbols.PlaceAddr, Value: uint64(at)})
	if err != nil {
		t.Fatal(err)
	}
	site := sites[0]
	live := *site.Module
	live.Bias = number(s.Bias)
	site.Module = &live
	return site
}

// compare checks all variables of one stop. want may be of a later stop, where
// gdb knows what it can't know at a function's entry.
func compare(t *testing.T, space *symbols.Space, s *stop, want map[string]*seen, complain *int) (c tally) {
	site := siteOf(t, space, s)
	scope := At(space, site)
	if fn, err := scope.Function(); err != nil || fn != bareName(s.Func) {
		return c
	}
	say := func(name, format string, args ...any) {
		c.differ++
		if *complain--; *complain >= 0 {
			t.Errorf("%s %s at %v of %s: %s", filepath.Base(site.Module.Path), name, site.Addr, s.Func, fmt.Sprintf(format, args...))
		}
	}
	for name, w := range want {
		if w.Error != "" || w.Other {
			continue
		}
		v, err := scope.Variable(name)
		switch {
		case w.Gone && err != nil:
			c.gone++
			continue
		case w.Gone, leavesOut(scope, name):
			c.weak++ // known here, not to gdb, which takes what a location leaves out for 0
			continue
		case err != nil && partly.MatchString(err.Error()):
			c.weak++
			continue
		case v.AtReturn:
			c.caller++ // a result of Go's, of which gdb shows what the stack holds
			continue
		case errors.Is(err, fetch.ErrNoValue) && !w.Arg && strings.Contains(err.Error(), "not past its prologue"):
			c.weak++ // gdb shows what happens to be below the stack pointer
			continue
		case errors.As(err, new(*undeclaredError)):
			c.weak++ // gdb shows what lies where it will be
			continue
		case errors.Is(err, fetch.ErrNoValue) && strings.Contains(err.Error(), "at the function's entry"):
			c.caller++ // gdb asks the caller's debug information what it passed
			continue
		case err != nil:
			say(name, "%v; gdb has %s", err, describe(w))
			continue
		}
		typ, val, err := evaluate(s, v)
		if err != nil {
			say(name, "%v", err)
			continue
		}
		if val.Fault && s.unreadable(w) {
			c.gone++
			continue
		}
		if why := same(typ, val, w, false); why != "" {
			say(name, "%s (%+v); gdb has %s", why, v, describe(w))
			continue
		}
		c.agree++
	}
	return c
}

// bareName is a function's name without what C++ puts around it.
func bareName(s string) string {
	s, _, _ = strings.Cut(s, "(")
	return s[strings.LastIndexByte(s, ':')+1:]
}

func describe(w *seen) string {
	b, _ := json.Marshal(w)
	if len(b) > 200 {
		b = b[:200]
	}
	return string(b)
}

// linesOf are the addresses of the entry and of each line of functions.
func linesOf(t *testing.T, space *symbols.Space, names ...string) []symbols.Vaddr {
	t.Helper()
	var out []symbols.Vaddr
	for _, n := range names {
		sites, err := space.Resolve(symbols.Place{Symbol: n})
		if err != nil {
			t.Fatalf("%s: %v", n, err)
		}
		for _, site := range sites {
			lines, _, _, err := space.Lines(site)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, site.Vaddr)
			for _, l := range lines {
				if v := site.Module.Vaddr(l.Addr); v != site.Vaddr {
					out = append(out, v)
				}
			}
		}
	}
	return out
}

// expressions are asked of both at every stop, where they can be.
func expressions() []string {
	return []string{"counter", "tls_level", "table[0].name", "table[1].at.y", "table[0].next->peer", "table[0].to->x",
		"*c", "c->name", "c->path[2]", "c->path[1].y", "c->level", "c->mode", "c->u.as_float", "c->next->at", "numbers[2]", "*numbers",
		"p.y", "big.fd", "big.hist[3]", "values[3]", "this->w", "this->id", "this->kind", "r->At", "r->To.Y", "r->Rate"}
}

func againstGDB(t *testing.T, prog string, unoptimized bool, names ...string) tally {
	t.Helper()
	space, err := symbols.OpenFileSpace(prog)
	if err != nil {
		t.Fatal(err)
	}
	stops := runGDB(t, prog, linesOf(t, space, names...), 2, expressions())
	complain := 12
	var sum tally
	for i, s := range stops {
		want := s.Vars
		if unoptimized && isEntry(space, s) {
			// What gdb says before the prologue is not so: wait for the next stop.
			if i+1 >= len(stops) || stops[i+1].Func != s.Func {
				continue
			}
			want = map[string]*seen{}
			for n, w := range stops[i+1].Vars {
				if w.Arg && !w.Gone {
					want[n] = w
				}
			}
		}
		sum.add(compare(t, space, s, want, &complain))
		s.mem = nil
	}
	return sum
}

func isEntry(space *symbols.Space, s *stop) bool {
	at := symbols.Vaddr(number(s.PC) - number(s.Bias))
	fn, ok := space.Modules()[0].File.FuncAt(at)
	return ok && fn.Start == at
}

// TestAgainstGDB compares the values of all variables at every line of the
// fixtures' functions with what gdb prints there.
func TestAgainstGDB(t *testing.T) {
	c := []string{"twice", "scalars", "pointers", "inliner", "by_value", "floats", "array"}
	cxx := []string{"shapes::Box::area", "shapes::Box::scale", "swap_in", "caller"}
	goFuncs := []string{"main.scalars", "main.text", "main.whole"}
	rust := []string{"dwarf_vars::scalars", "dwarf_vars::text", "dwarf_vars::shapes"}
	var sum tally
	for _, p := range []struct {
		source string
		flags  []string
		funcs  []string
		least  int
		raw    bool // unoptimized: gdb can't tell at the function's entry
		cc     string
	}{
		{"dwarf_vars.c", []string{"-g", "-O0"}, c, 150, true, ""},
		{"dwarf_vars.c", []string{"-g", "-O1"}, c, 80, false, ""},
		{"dwarf_vars.c", []string{"-g", "-O2"}, c, 80, false, ""},
		{"dwarf_vars.c", []string{"-g", "-O3"}, c, 35, false, ""},
		{"dwarf_vars.c", []string{"-gdwarf-4", "-O2"}, c, 80, false, ""},
		{"dwarf_vars.cc", []string{"-g", "-O0"}, cxx, 25, true, ""},
		{"dwarf_vars.cc", []string{"-g", "-O2"}, cxx, 8, false, ""},
		{"dwarf_vars.cc", []string{"-g", "-O0", "-fdebug-types-section"}, cxx, 25, true, ""},
		{"dwarf_vars.cc", []string{"-gdwarf-4", "-O0", "-fdebug-types-section"}, cxx, 25, true, ""},
		{"dwarf_vars.cc", []string{"-g", "-O3"}, cxx, 6, false, ""},
		{"dwarf_vars.go", nil, goFuncs, 20, false, ""},
		{"dwarf_vars.go", []string{"-gcflags=-N -l"}, goFuncs, 20, true, ""},
		{"dwarf_vars.rs", []string{"-g"}, rust, 40, true, ""},
		{"dwarf_vars.rs", []string{"-g", "-O"}, rust, 20, false, ""},
		{"dwarf_vars.c", []string{"-g", "-O0"}, c, 150, true, "clang"},
		{"dwarf_vars.c", []string{"-g", "-O2"}, c, 80, false, "clang"},
		{"dwarf_vars.c", []string{"-gdwarf-4", "-O3"}, c, 35, false, "clang"},
		{"dwarf_vars.c", []string{"-gdwarf-2", "-O1"}, c, 80, false, "clang"},
	} {
		t.Run(p.source+p.cc+strings.Join(p.flags, ""), func(t *testing.T) {
			if p.cc != "" {
				t.Setenv("CC", fixture.NeedTool(t, p.cc))
			}
			got := againstGDB(t, fixture.Build(t, p.source, p.flags...), p.raw, p.funcs...)
			t.Logf("%d values agree, %d are gone for both, %d are known here alone or only in parts, %d are known to the caller alone, %d differ",
				got.agree, got.gone, got.weak, got.caller, got.differ)
			if got.differ > 0 || got.agree < p.least {
				t.Errorf("%+v", got)
			}
			sum.add(got)
		})
	}
	t.Logf("in all: %d values agree, %d are gone for both, %d differ", sum.agree, sum.gone, sum.differ)
}
