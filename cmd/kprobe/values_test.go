package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestValues compares what kprobe prints with what programs print of themselves:
// a source in testdata has its definitions in lines with "probe:", where
// FILE:WORD is the line with "// WORD", and prints "=EVENT JSON" for each hit.
// Those with "probe-O0:" are for builds that aren't optimized.
func TestValues(t *testing.T) {
	for _, c := range []struct {
		source string
		flags  []string
	}{
		{"values_types.c", []string{"-g", "-O0"}},
		{"values_types.c", []string{"-g", "-O2"}},
		{"values_types.c", []string{"-g", "-O1", "-gdwarf-4"}},
		{"values_oldstyle.c", []string{"-g", "-O0"}},
		{"values_oldstyle.c", []string{"-g", "-O2"}},
		{"values_returns.c", []string{"-g", "-O0"}},
		{"values_go.go", nil},
		{"values_go.go", []string{"-gcflags=all=-N -l"}},
		{"values_words.go", []string{"-ldflags=-s -w"}},
		{"values_blank.go", nil},
		{"values_blank.go", []string{"-gcflags=all=-N -l"}},
		{"values_numbered.go", nil},
		{"values_numbered.go", []string{"-gcflags=all=-N -l"}},
		{"values_seen.go", []string{"-gcflags=-N"}},
		{"values_seen.go", []string{"-gcflags=-N -l"}},
		{"values_seen.c", []string{"-g", "-O0"}},
		{"values_rust.rs", []string{"-g"}},
		{"values_rust.rs", []string{"-g", "-O"}},
		{"values_unsized.rs", []string{"-g"}},
		{"values_unsized.rs", []string{"-g", "-O"}},
		{"values_passed.rs", []string{"-g"}},
		{"values_passed.rs", []string{"-g", "-O"}},
		{"values_cxx.cc", []string{"-g", "-O0"}},
		{"values_cxx.cc", []string{"-g", "-O2", "-gdwarf-4"}},
		{"values_returns.c", []string{"-g", "-O2"}},
		{"values_inline.c", []string{"-g", "-O1"}},
		{"values_inline.c", []string{"-g", "-O2", "-gdwarf-4"}},
		{"values_rare.cc", []string{"-g", "-O0"}},
		{"values_rare.cc", []string{"-g", "-O2"}},
		{"values_rare.cc", []string{"-g", "-O1", "-gdwarf-4"}},
		{"values_passed.cc", []string{"-g", "-O1", "-stdlib=libc++"}},
		{"values_passed.cc", []string{"-g", "-O2"}},
		{"values_left.cc", []string{"-g", "-O0", "-stdlib=libc++"}},
		{"values_left.cc", []string{"-g", "-O0"}},
		{"values_left.cc", []string{"-g", "-O1", "-stdlib=libc++"}},
		{"values_names.cc", []string{"-g", "-O0"}},
		{"values_names.cc", []string{"-g", "-O2"}},
		{"values_names.cc", []string{"-g", "-O1", "-stdlib=libc++"}},
		{"values_wide.cc", []string{"-std=c++20", "-g", "-O0"}},
		{"values_wide.cc", []string{"-std=c++20", "-g", "-O2", "-gdwarf-4"}},
		{"values_wide.cc", []string{"-std=c++20", "-g", "-O0", "-stdlib=libc++"}},
	} {
		t.Run(c.source+strings.Join(c.flags, ""), func(t *testing.T) {
			t.Parallel()
			optimized := slices.ContainsFunc(c.flags, func(s string) bool { return strings.HasPrefix(s, "-O") && s != "-O0" })
			source := filepath.Join(fixture.Root(), "testdata", c.source)
			compareValues(t, definitions(t, source, optimized), []string{fixture.Build(t, c.source, c.flags...)})
		})
	}
}

// TestValuesPacked compares the values beside arguments that compilers pass
// differently.
func TestValuesPacked(t *testing.T) {
	for _, cc := range []string{"gcc", "clang"} {
		t.Setenv("CC", fixture.NeedTool(t, cc))
		for _, flags := range []string{"-O0", "-O2"} {
			const source = "values_packed.c"
			compareValues(t, definitions(t, filepath.Join(fixture.Root(), "testdata", source), false),
				[]string{fixture.Build(t, source, "-gdwarf-4", flags)})
		}
	}
}

var probeLine = regexp.MustCompile(`(?m)^\s*// probe(-O0)?: (.*)$`)

// definitions reads the definitions in a source.
func definitions(t *testing.T, source string, optimized bool) []string {
	t.Helper()
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	marks := map[string]string{}
	for i, line := range strings.Split(string(text), "\n") {
		if _, mark, ok := strings.Cut(line, " // "); ok && mark != "" && strings.ToUpper(mark) == mark {
			marks[filepath.Base(source)+":"+mark] = filepath.Base(source) + ":" + strconv.Itoa(i+1)
		}
	}
	var defs []string
	for _, m := range probeLine.FindAllStringSubmatch(string(text), -1) {
		if m[1] != "" && optimized {
			continue
		}
		words := strings.Fields(m[2])
		for i := range words {
			if at, ok := marks[words[i]]; ok {
				words[i] = at
			}
		}
		defs = append(defs, strings.Join(words, " "))
	}
	return defs
}

// compareValues traces a command that prints the values of its hits.
func compareValues(t *testing.T, defs, command []string) tally {
	t.Helper()
	return compareKnown(t, defs, command, nil)
}

// compareKnown is compareValues but for the values that unknown names, EVENT NAME.
func compareKnown(t *testing.T, defs, command []string, unknown map[string]bool) tally {
	t.Helper()
	return compareLacking(t, defs, command, unknown, nil)
}

// compareLacking is compareKnown. Only values for which lacking is true, if it isn't nil, may be null or have
// parts that are.
func compareLacking(t *testing.T, defs, command []string, unknown map[string]bool, lacking func(path string) bool) tally {
	t.Helper()
	out := filepath.Join(t.TempDir(), "hits")
	cmd := exec.Command(program(t), append(append(append([]string{"trace", "--json", "-o", out}, defs...), "--"), command...)...)
	var own, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &own, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	want := map[string][]map[string]any{}
	for s := bufio.NewScanner(&own); s.Scan(); {
		event, text, ok := strings.Cut(strings.TrimPrefix(s.Text(), "="), " ")
		if !ok || !strings.HasPrefix(s.Text(), "=") || !slices.ContainsFunc(defs, func(d string) bool { return eventOf(d) == event }) {
			continue
		}
		values := decodeValues(t, text)
		maps.DeleteFunc(values, func(name string, _ any) bool { return unknown[event+" "+name] })
		want[event] = append(want[event], values)
	}
	have, cut := map[string][]map[string]any{}, map[string][][]string{}
	file, err := os.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := bufio.NewScanner(file)
	for s.Buffer(nil, 1<<24); s.Scan(); {
		var hit struct {
			Type, Event string
			Args        json.RawMessage
			Cut         []string
		}
		if err := json.Unmarshal(s.Bytes(), &hit); err != nil {
			t.Fatalf("%v: %s", err, s.Text())
		}
		if hit.Type == "hit" {
			values := decodeValues(t, string(hit.Args))
			for _, name := range hit.Cut {
				if list, ok := values[name].([]any); ok {
					values[name] = cutList(list)
				}
			}
			have[hit.Event], cut[hit.Event] = append(have[hit.Event], values), append(cut[hit.Event], hit.Cut)
		}
	}
	gone := map[string]bool{} // events whose definitions ask for whatever there is
	for _, d := range defs {
		gone[eventOf(d)] = strings.Contains(d, "$params") || strings.Contains(d, "$locals") || strings.Contains(d, "$vars") || strings.HasPrefix(d, "j")
		if event := eventOf(d); len(want[event]) == 0 && len(have[event]) > 0 {
			t.Errorf("%s: %d hits, the program tells of none", event, len(have[event]))
		}
	}
	n := tally{faults: unknown != nil, lacking: lacking}
	for event, list := range want {
		if len(have[event]) != len(list) {
			t.Errorf("%s: %d hits, want %d\n%s", event, len(have[event]), len(list), errs.String())
			continue
		}
		for i := range list {
			n.limited = cut[event][i]
			n.differences(t, fmt.Sprintf("%s %d", event, i+1), have[event][i], list[i], gone[event])
		}
	}
	if n.equal == 0 {
		t.Errorf("nothing was compared\n%s", errs.String())
	}
	return n
}

// cutList is an array of which kprobe says that it has not recorded all.
type cutList []any

// begins reports whether a list has the beginning of another one, and of its elements.
func begins(have, want any) bool {
	h, isList := have.([]any)
	w, ok := want.([]any)
	if !isList || !ok {
		return reflect.DeepEqual(plainValue(have), plainValue(want))
	}
	return len(h) <= len(w) && slices.EqualFunc(h, w[:len(h)], begins)
}

// lacks reports a value part of which is null.
func lacks(v any) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, lacks)
	case map[string]any:
		for _, e := range v {
			if lacks(e) {
				return true
			}
		}
	}
	return v == nil
}

// agrees reports whether a value is another one but for what it lacks; a container part of
// which is nowhere is there by its own members.
func agrees(have, want any) bool {
	switch h := have.(type) {
	case nil:
		return true
	case []any:
		w, ok := want.([]any)
		return ok && slices.EqualFunc(h, w, agrees)
	case map[string]any:
		w, ok := want.(map[string]any)
		if !ok {
			return lacks(h)
		}
		for name, e := range h {
			if of, known := w[name]; known && !agrees(e, of) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(plainValue(have), plainValue(want))
}

// members are those of a value that is there by them: NAME.MEMBER.
func members(have map[string]any, name string) (of map[string]any, ok bool) {
	of = map[string]any{}
	for k, v := range have {
		if m, is := strings.CutPrefix(k, name+"."); is {
			of[m] = v
		}
	}
	return of, len(of) > 0
}

// eventOf is the event that a definition names: TYPE:EVENT PLACE.
func eventOf(def string) string {
	word, _, _ := strings.Cut(def, " ")
	_, event, _ := strings.Cut(word, ":")
	return event
}

func decodeValues(t *testing.T, text string) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if key := repeatedKey(json.NewDecoder(strings.NewReader(text))); key != "" {
		t.Errorf("the key %q is there twice: %s", key, text)
	}
	return v
}

// repeatedKey reads a value and finds a key that one of its objects has twice; "": none has.
func repeatedKey(d *json.Decoder) (found string) {
	open, _ := d.Token()
	if open != json.Delim('{') && open != json.Delim('[') {
		return ""
	}
	seen := map[string]bool{}
	for d.More() {
		if open == json.Delim('{') {
			key, _ := d.Token()
			name, _ := key.(string)
			if seen[name] {
				found = name
			}
			seen[name] = true
		}
		found = cmp.Or(repeatedKey(d), found)
	}
	_, _ = d.Token()
	return found
}

// symbolName is an address that is a function's.
var symbolName = regexp.MustCompile(`^(\w+)(?:\(.*\))?\+0x0/0x[0-9a-f]+$`)

// plainValue is a value that can be compared: integers beyond 2^53, which are
// texts in JSON, are numbers of the same digits.
func plainValue(v any) any {
	switch v := v.(type) {
	case string: // of functions programs know the names
		return symbolName.ReplaceAllString(v, "$1")
	case json.Number:
		if f, err := v.Float64(); err == nil && (strings.ContainsAny(string(v), ".eE") || math.Abs(f) < 1<<53) {
			return strconv.FormatFloat(f, 'g', -1, 64)
		}
		return string(v)
	case cutList:
		return plainValue([]any(v))
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plainValue(v[i])
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k := range v {
			out[k] = plainValue(v[k])
		}
		return out
	}
	return v
}
