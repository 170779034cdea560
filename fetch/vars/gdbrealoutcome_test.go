package vars

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/symbols"
)

// beforeFrame reports a parameter that counts from the function's frame, at its entry.
func beforeFrame(scope *Scope, name string) (is bool) {
	name, _, _ = strings.Cut(name, "->")
	_ = scope.read(func(f *frame) error {
		if e, ok := f.name(name); ok {
			is = f.unstored(&e)
		}
		return nil
	})
	return is
}

// simpleName is a function's name without its arguments, those of its template, and what
// it belongs to.
func simpleName(s string) string {
	s = strings.ReplaceAll(s, "(anonymous namespace)::", "")
	if !strings.Contains(s, "operator") {
		var b strings.Builder
		depth := 0
		for _, c := range s {
			switch {
			case c == '<':
				depth++
			case c == '>':
				depth--
			case depth == 0:
				b.WriteRune(c)
			}
		}
		s, _, _ = strings.Cut(b.String(), "(")
	}
	return s[strings.LastIndexAny(s, ":.")+1:]
}

// outcome counts, and keeps an example of each kind.
type outcome struct {
	equal, gone, here, wrong, other int
	missing                         map[string]int
	example                         map[string]string
	wrongs                          []string
	entered                         map[string]entryValue // of unoptimized code
	function                        string
}

var numbers = regexp.MustCompile(`(?:0x)?[0-9a-f]*[0-9][0-9a-f]*|/\S+|"[^"]*"`)

func (o *outcome) miss(kind, why, example string) {
	key := kind + ": " + numbers.ReplaceAllString(why, "N")
	if len(key) > 160 {
		key = key[:160]
	}
	if o.missing[key]++; o.missing[key] == 1 {
		o.example[key] = example
	}
}

func (o *outcome) report(t *testing.T, name string) {
	miss := 0
	keys := make([]string, 0, len(o.missing))
	for k, n := range o.missing {
		miss += n
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool { return o.missing[keys[i]] > o.missing[keys[j]] })
	t.Logf("%s: %d equal, %d wrong, %d gone for both, %d known here alone, %d known to gdb alone, %d of no comparable kind", name, o.equal, o.wrong, o.gone, o.here, miss, o.other)
	for _, k := range keys[:min(len(keys), 40)] {
		t.Logf("%6d %s\n\t\te.g. %s", o.missing[k], k, o.example[k])
	}
	for _, w := range o.wrongs {
		t.Error(w)
	}
}

// liveCompare compares the variables of one frame of a stop.
func (o *outcome) compare(t *testing.T, space *symbols.Space, s *liveStop, raw bool) {
	site := siteOf(t, space, &s.stop)
	scope := At(space, site)
	fn, err := scope.Function()
	if err != nil {
		o.miss("stop", err.Error(), fmt.Sprintf("%v %s", site.Addr, s.Frames[0].Func))
		return
	}
	i := slices.IndexFunc(s.Frames, func(f liveFrame) bool { return simpleName(f.Func) == simpleName(fn) })
	if i < 0 {
		o.miss("stop", "other function", fmt.Sprintf("%v %s, gdb is in %s", site.Addr, fn, s.Frames[0].Func))
		return
	}
	f := &s.Frames[i]
	entry := isEntry(space, &s.stop)
	if raw && !s.Return {
		o.kept(t, s, scope, f, entry)
	}
	for name, w := range f.Vars {
		if w.Error != "" || w.Other {
			o.other++
			continue
		}
		if entry && (raw || beforeFrame(scope, name)) {
			continue // gdb counts from a frame that the function hasn't made yet
		}
		at := fmt.Sprintf("%s at %v of %s (%s)", name, symbols.Vaddr(number(s.PC)-number(s.Bias)), f.Func, filepath.Base(site.Module.Path))
		var v fetch.Variable
		if s.Return {
			v, err = scope.Result()
		} else {
			v, err = scope.Variable(name)
		}
		kind := "local"
		switch {
		case s.Return:
			kind = "result"
		case w.Arg:
			kind = "param"
		case strings.Contains(name, "->"):
			kind = "member"
		}
		if entry {
			kind += " at entry"
		}
		switch {
		case w.Gone && err != nil:
			o.gone++
			continue
		case w.Gone:
			o.here++
			continue
		case err != nil:
			o.miss(kind, strings.ReplaceAll(strings.ReplaceAll(err.Error(), bareName(f.Func), "FN"), name, "X"), at+": "+err.Error()+"; gdb has "+describe(w))
			continue
		}
		if v.ByEntry {
			o.other++ // its address is the entry's, which this stop doesn't have
			continue
		}
		typ, val, err := evaluateLive(s, v)
		if err != nil {
			o.miss(kind, "not evaluated: "+err.Error(), at+": "+err.Error())
			continue
		}
		switch why := same(typ, val, w, true); {
		case why == "fault" && slices.ContainsFunc(v.Chain.Steps, func(s fetch.Step) bool { return s.Op == fetch.StepWhen }):
			o.miss(kind, "fault: called from elsewhere", at)
		case why == "":
			o.equal++
		case why == "gdb has no comparable value":
			o.other++
		default:
			o.wrong++
			o.wrongs = append(o.wrongs, fmt.Sprintf("%s: %s (%+v); gdb has %s", at, why, v, describe(w)))
		}
	}
}

// entryValue is a parameter as it was recorded at a function's entry.
type entryValue struct {
	typ fetch.Type
	val fetch.Value
	v   fetch.Variable
	err error
}

// kept compares what was recorded at an unoptimized function's entry with what gdb has at the
// next stop, if that is in the function, too, and where its prologue ends.
func (o *outcome) kept(t *testing.T, s *liveStop, scope *Scope, f *liveFrame, entry bool) {
	if entry {
		o.entered, o.function = map[string]entryValue{}, f.Func
		for name, w := range f.Vars {
			if w.Arg {
				var e entryValue
				if e.v, e.err = scope.Variable(name); e.err == nil {
					e.typ, e.val, e.err = evaluateLive(s, e.v)
				}
				o.entered[name] = e
			}
		}
		return
	}
	if o.function == f.Func {
		for name, e := range o.entered {
			w := f.Vars[name]
			if w == nil || !w.Arg || w.Other || w.Error != "" {
				continue
			}
			at := fmt.Sprintf("%s at the entry of %s", name, f.Func)
			if e.err != nil {
				o.miss("param at entry", strings.ReplaceAll(e.err.Error(), name, "X"), at+"; gdb has "+describe(w))
			} else if why := same(e.typ, e.val, w, true); why != "" {
				o.wrong++
				o.wrongs = append(o.wrongs, fmt.Sprintf("%s: %s (%+v); gdb has %s", at, why, e.v, describe(w)))
			} else {
				o.equal++
			}
		}
	}
	o.function = ""
}
