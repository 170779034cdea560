package vars

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// printedLive is a variable at a stop, as kprobe prints it.
func printedLive(s *liveStop, v fetch.Variable) (any, error) {
	d, err := fetch.Parse("p f x=v")
	if err != nil {
		return nil, err
	}
	d.Limit = fetch.Limit{Elements: 64, Depth: fetch.MaxDepth}
	v.AtReturn = false
	prog, err := d.Compile(oneVariable{v})
	if err != nil {
		return nil, err
	}
	ctx := s.context()
	ctx.Mem = s
	rec, ok := prog.Eval(ctx, nil)
	if !ok {
		return nil, errors.New("not recorded")
	}
	vals, err := prog.Decode(rec, nil)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(strings.NewReader(string(fetch.AppendJSON(nil, prog.Fields()[0].Type, vals[0], nil))))
	dec.UseNumber()
	var out any
	if err := dec.Decode(&out); err != nil {
		return nil, err
	}
	if vals[0].Fault {
		return nil, errors.New("(fault)")
	}
	return out, nil
}

// compareDelve compares the variables at a stop.
func (o *outcome) compareDelve(t *testing.T, space *symbols.Space, d *delve, thread *delveThread, bias uint64) {
	s := d.registers(thread.ID, bias)
	site := siteOf(t, space, &s.stop)
	scope := At(space, site)
	fn, err := scope.Function()
	if err != nil {
		o.miss("stop", err.Error(), site.Addr.String())
		return
	}
	frame := slices.Index(d.frames(number(s.PC)), fn)
	if frame < 0 {
		o.miss("stop", "other function", fmt.Sprintf("%v %s, delve is in %v", site.Addr, fn, d.frames(number(s.PC))))
		return
	}
	list, err := d.variables(frame)
	if err != nil {
		o.miss("stop", "delve: "+err.Error(), site.Addr.String())
		return
	}
	entry := isEntry(space, &s.stop)
	for i := range list {
		w := &list[i]
		name := strings.TrimPrefix(w.Name, "&")
		kind := "local"
		switch {
		case w.Flags&delveResult != 0:
			kind = "named result"
		case w.Flags&delveArgument != 0:
			kind = "param"
		}
		if entry {
			kind += " at entry"
		}
		if d.old && entry && w.Flags&delveArgument == 0 {
			continue
		}
		if sp := number(s.GPR[4]); entry && w.Addr < sp && w.Addr+maxGoFrame >= sp {
			continue // delve reads a frame that isn't there yet
		}
		at := fmt.Sprintf("%s at %v of %s (%s)", name, symbols.Vaddr(number(s.PC)-number(s.Bias)), fn, w.Type)
		v, err := scope.Variable(name)
		if v.AtReturn {
			continue // a result, which delve has at another place before the return
		}
		o.judge(s, kind, at, name, v, err, w)
	}
}

// hasGap reports whether padding lies between parts of a value.
func hasGap(parts []fetch.Part) bool {
	for i := range parts[:max(len(parts)-1, 0)] {
		if parts[i].Off+int(parts[i].Size) < parts[i+1].Off {
			return true
		}
	}
	return false
}

// maxGoFrame is more than the frame of a function that the comparisons meet.
const maxGoFrame = 1 << 16

// judge compares one variable.
func (o *outcome) judge(s *liveStop, kind, at, name string, v fetch.Variable, err error, w *delveVar) {
	gone := w.Unreadable != ""
	switch {
	case gone && err != nil:
		o.gone++
		return
	case gone:
		o.here++
		return
	case err != nil:
		b, _ := json.Marshal(w)
		o.miss(kind, strings.ReplaceAll(err.Error(), name, "X"), fmt.Sprintf("%s: %v; delve has %.200s", at, err, b))
		return
	}
	if w.Addr >= delveFake && hasGap(v.Parts) {
		o.other++ // Go's debug information says nothing of padding, and delve has the parts behind it elsewhere
		return
	}
	have, err := printedLive(s, v)
	if err != nil {
		b, _ := json.Marshal(w)
		o.miss(kind, "not evaluated: "+err.Error(), fmt.Sprintf("%s: %v; delve has %.200s", at, err, b))
		return
	}
	skipped := 0
	if why := atDelve(have, w, &skipped); why != "" {
		o.wrong++
		if len(o.wrongs) < 60 {
			o.wrongs = append(o.wrongs, fmt.Sprintf("%s %s: %s (%+v)", kind, at, why, v))
		}
		return
	}
	o.equal++
	o.other += skipped
}

// beneathGo matches functions that run where goroutines don't: on a thread's own stack, or before the runtime is up.
var beneathGo = regexp.MustCompile(`^(?:internal/)?runtime[./]|^internal/(?:abi|bytealg|cpu|goarch)\.`)

// TestRealAgainstDelve is TestRealAgainstGDB for programs of Go: KPROBE_TEST_REALGO is the command, and
// KPROBE_TEST_STOPS how many stops are compared. A program that reads its input gets a few empty lines.
func TestRealAgainstDelve(t *testing.T) {
	command := strings.Fields(os.Getenv("KPROBE_TEST_REALGO"))
	if len(command) == 0 {
		command = []string{buildForDelve(t, filepath.Join(fixture.Root(), "cmd", "kprobe", "testdata", "values_delve.go"))}
		t.Setenv("KPROBE_TEST_FUNCS", `^main\.`)
	}
	limit, lines, rounds, most := setting("KPROBE_TEST_LIMIT", 300), setting("KPROBE_TEST_LINES", 3), setting("KPROBE_TEST_ROUNDS", 2), setting("KPROBE_TEST_STOPS", 2000)
	funcs := regexp.MustCompile(os.Getenv("KPROBE_TEST_FUNCS"))
	fixture.NeedTool(t, "dlv")
	rng := rand.New(rand.NewSource(int64(setting("KPROBE_TEST_SEED", 1))))
	space, err := symbols.OpenFileSpace(command[0])
	if err != nil {
		t.Fatal(err)
	}
	m := space.Modules()[0]
	var fns []symbols.Func
	for _, fn := range m.File.Funcs() {
		if fn.End > fn.Start && funcs.MatchString(fn.Symbol.Name) && !beneathGo.MatchString(fn.Symbol.Name) {
			fns = append(fns, fn)
		}
	}
	rng.Shuffle(len(fns), func(i, j int) { fns[i], fns[j] = fns[j], fns[i] })
	var at []symbols.Vaddr
	for _, fn := range fns[:min(limit, len(fns))] {
		at = append(at, rowsOf(m, fn, lines, rng)...)
	}
	slices.Sort(at)
	at = slices.Compact(at)
	d := startDelve(t, command)
	ids := map[int]int{}
	bias := d.bias(command[0])
	for _, a := range at {
		var r struct{ Breakpoint struct{ ID int } }
		if err := d.call("CreateBreakpoint", rpcArg{"Breakpoint": rpcArg{"addr": uint64(a) + bias}}, &r); err == nil {
			ids[r.Breakpoint.ID] = 0
		}
	}
	o := &outcome{missing: map[string]int{}, example: map[string]string{}}
	stops, returns, broken := 0, 0, 0
	next := "continue"
	var from symbols.Site
	for stops < most {
		state, err := d.command(next)
		if err != nil && next == "stepOut" && broken < 20 {
			// Old versions of delve can't step out of functions of today's Go.
			broken++
			_ = d.call("CancelNext", rpcArg{}, &struct{}{})
			next = "continue"
			continue
		}
		if err != nil || state.Exited || state.CurrentThread == nil {
			t.Log(err, state)
			break
		}
		if th := state.CurrentThread; next == "stepOut" {
			if th.Breakpoint == nil && th.ReturnValues != nil && !state.NextInProgress {
				returns++
				o.returned(d, space, from, th, bias)
			} else if state.NextInProgress {
				_ = d.call("CancelNext", rpcArg{}, &struct{}{})
			}
		}
		next = "continue"
		th := state.CurrentThread
		if th.Breakpoint == nil {
			continue
		}
		stops++
		o.compareDelve(t, space, d, th, bias)
		s := d.registers(th.ID, bias)
		if isEntry(space, &s.stop) && stops%2 == 0 {
			from, next = siteOf(t, space, &s.stop), "stepOut"
		}
		if n, ok := ids[th.Breakpoint.ID]; ok {
			if ids[th.Breakpoint.ID] = n + 1; n+1 >= rounds {
				_ = d.call("ClearBreakpoint", rpcArg{"Id": th.Breakpoint.ID}, &struct{}{})
			}
		}
	}
	t.Logf("%d places, %d stops, %d returns", len(at), stops, returns)
	o.report(t, filepath.Base(command[0]))
	if o.equal == 0 {
		t.Error("nothing was compared")
	}
}

// returned compares what a function returned.
func (o *outcome) returned(d *delve, space *symbols.Space, from symbols.Site, th *delveThread, bias uint64) {
	s := d.registers(th.ID, bias)
	scope := At(space, from)
	for i := range th.ReturnValues {
		w := &th.ReturnValues[i]
		if strings.Contains(w.Name, " ") {
			continue // an error
		}
		name := "$retval" + strconv.Itoa(i+1)
		if len(th.ReturnValues) == 1 {
			name = "$retval"
		}
		v, err := scope.Variable(name)
		o.judge(s, "result", fmt.Sprintf("%s (%s) of %s (%s)", name, w.Name, from.Name(), w.Type), name, v, err, w)
	}
}
