package output

import (
	"encoding/json"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// inlinedCall is an address in a fixture behind a call that is inlined code.
func inlinedCall(t *testing.T) (*symbols.Space, symbols.Addr) {
	t.Helper()
	space, err := symbols.OpenFileSpace(fixture.Build(t, "stack_calls.c", "-g", "-O2", "-fomit-frame-pointer"))
	if err != nil {
		t.Fatal(err)
	}
	sites, err := space.Resolve(symbols.Place{Symbol: "host"})
	if err != nil {
		t.Fatal(err)
	}
	for a := sites[0].Addr + 1; a < sites[0].Addr+symbols.Addr(sites[0].Func.Size()); a++ {
		if f := space.Frames(a - 1); len(f) == 2 {
			return space, a
		}
	}
	t.Fatal("nothing is inlined into host")
	return nil, 0
}

func TestStackText(t *testing.T) {
	space, call := inlinedCall(t)
	h := newScene(t).hit(t, "p:work work", fetch.Regs{}, memory{})
	h.Space = space
	_, off, _, _, _ := space.Symbolize(call - 1)
	h.Stack = []symbols.StackFrame{{Addr: call - 1}, {Addr: call, Call: true}, {Addr: call, Signal: true}, {Addr: 0x7fff00000000, Call: true}}
	h.StackEnd = symbols.StackTruncated
	lines := func(f *Formatter) []string {
		line, err := f.Append(nil, h)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSuffix(string(line), "\n"), "\n")[1:]
	}
	hex := func(v uint64) string { return string(appendHex(nil, v)) }
	want := []string{" => host+" + hex(off), " => host+" + hex(off+1), " => <signal handler called>", " => 0x7fff00000000", " => (truncated: the copy of the stack ends here)"}
	f := &Formatter{}
	for range 2 { // the second time from what is remembered
		if got := lines(f); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	h.StackEnd = symbols.StackUnknown
	got := lines(&Formatter{Lines: true})
	if len(got) != 7 || !strings.HasPrefix(got[2], " => inlined at /") || !strings.HasSuffix(got[2], " (inlined)") || !strings.Contains(got[3], " => host+"+hex(off+1)+" at /") ||
		got[6] != " => (unknown: nothing says who called this)" {
		t.Errorf("%q", got)
	}
}

func TestStackJSON(t *testing.T) {
	space, call := inlinedCall(t)
	h := newScene(t).hit(t, "p:work work", fetch.Regs{}, memory{})
	h.Space = space
	h.Stack = []symbols.StackFrame{{Addr: call, Call: true}, {Addr: call, Signal: true}, {Addr: 0x7fff00000000}}
	type frame struct {
		IP, Sym, Module, File string
		Off                   *uint64
		Line                  int
		Inlined, Signal       bool
	}
	var o struct {
		Stack    []frame
		StackEnd *string `json:"stack_end"`
	}
	f := &Formatter{Form: JSON}
	line, err := f.Append(nil, h)
	if err == nil {
		err = json.Unmarshal(line, &o)
	}
	if err != nil || len(o.Stack) != 4 || o.StackEnd != nil {
		t.Fatalf("%v: %s", err, line)
	}
	in, host := o.Stack[0], o.Stack[1]
	if !in.Inlined || in.Sym != "inlined" || in.Off != nil || in.Line == 0 || !strings.HasSuffix(in.File, "stack_calls.c") ||
		host.Inlined || host.Sym != "host" || host.Off == nil || host.Line <= in.Line || host.IP != in.IP || host.Module != "stack_calls" {
		t.Errorf("%s", line)
	}
	if !o.Stack[2].Signal || o.Stack[3].IP != "0x7fff00000000" || o.Stack[3].Sym != "" || o.Stack[3].Module != "" {
		t.Errorf("%s", line)
	}
	h.StackEnd = symbols.StackTruncated
	if line, err = f.Append(nil, h); err != nil || json.Unmarshal(line, &o) != nil || o.StackEnd == nil || *o.StackEnd != "truncated" {
		t.Errorf("%s", line)
	}
	h.Stack, h.Space = nil, nil
	if line, err = f.Append(nil, h); err != nil || strings.Contains(string(line), "stack") {
		t.Errorf("without a stack: %s", line)
	}
}
