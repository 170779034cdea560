package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// delveVar is what delve tells of a variable: the kind is reflect's.
type delveVar struct {
	Name, Type, Value, Unreadable string
	Kind                          reflect.Kind
	Len                           int
	Children                      []delveVar
}

// address is whether a pointer is set: another run has another heap.
type address bool

// unread is an interface that delve knows not to be nil, and no more of it.
type unread struct{}

// shown gives a variable as kprobe's JSON has it. Delve 1.20 doesn't read what Go
// 1.26's interfaces hold: of those it is the type alone, or unread for one with methods.
func (v delveVar) shown(t *testing.T) any {
	t.Helper()
	number := func(f float64, err error) any {
		if err != nil || v.Unreadable != "" {
			t.Fatalf("delve's %s: %v %s", v.Name, err, v.Unreadable)
		}
		return f
	}
	switch k := v.Kind; k {
	case reflect.Bool:
		return v.Value == "true"
	case reflect.String:
		return v.Value
	case reflect.Slice, reflect.Array:
		list := []any{}
		for _, c := range v.Children {
			list = append(list, c.shown(t))
		}
		if len(list) != v.Len {
			t.Fatalf("delve's %s: %d of %d elements", v.Name, len(list), v.Len)
		}
		return list
	case reflect.Struct:
		members := map[string]any{}
		for _, c := range v.Children {
			members[c.Name[strings.LastIndexByte(c.Name, '.')+1:]] = c.shown(t)
		}
		return members
	case reflect.Pointer:
		return address(v.Value != "0")
	case reflect.Interface:
		if len(v.Children) == 0 {
			return unread{}
		}
		if v.Children[0].Kind == reflect.Invalid {
			return nil
		}
		return v.Children[0].Type
	case reflect.Float32, reflect.Float64:
		return number(strconv.ParseFloat(v.Value, 64))
	default:
		if k < reflect.Int || k > reflect.Uintptr {
			t.Fatalf("delve's %s is of kind %s", v.Name, k)
		}
		return v.Value
	}
}

// likeDelve brings a value of kprobe's JSON to what shown gives.
func likeDelve(have, want any) any {
	if want == any(unread{}) && have != nil {
		return want
	}
	switch h := have.(type) {
	case map[string]any:
		if _, ok := want.(string); ok {
			return h["type"]
		}
		members, _ := want.(map[string]any)
		out := map[string]any{}
		for k, v := range h {
			out[k] = likeDelve(v, members[k])
		}
		return out
	case []any:
		list, _ := want.([]any)
		out := []any{}
		for i, v := range h {
			var w any
			if i < len(list) {
				w = list[i]
			}
			out = append(out, likeDelve(v, w))
		}
		return out
	case json.Number:
		switch want.(type) {
		case address:
			return address(h != "0")
		case string:
			return h.String()
		}
		f, _ := h.Float64()
		return f
	}
	return have
}

// TestAgainstDelve compares Go values, at functions' entries and at lines, with what
// delve prints there of a program of the same addresses. Delve's versions that
// distributions have read DWARF 4 only, and no maps of today's Go.
func TestAgainstDelve(t *testing.T) {
	tool := fixture.NeedTool(t, "dlv")
	source := filepath.Join(fixture.Root(), "cmd/kprobe/testdata/values_delve.go")
	prog := filepath.Join(t.TempDir(), "values_delve")
	build := exec.Command(fixture.NeedTool(t, "go"), "build", "-gcflags=-N -l", "-o", prog, source)
	build.Env = append(os.Environ(), "GOEXPERIMENT=nodwarf5", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]int{}
	for i, l := range strings.Split(string(text), "\n") {
		if _, mark, ok := strings.Cut(l, ") // "); ok {
			lines[mark] = i + 1
		}
	}
	type place struct{ function, mark, values string }
	places := []place{
		{"main.ints", "", "a b c d e f g h i"},
		{"main.others", "", "b f g r s l n m o"},
		{"main.lists", "", "a b c d e f g"},
		{"main.structs", "", "p=p c q n to=*q"},
		{"main.interfaces", "", "a e l s"},
		{"main.(*conn).method", "", "c by to"},
		{"main.point.value", "", "p=p f"},
		{"main.closure.func1", "", "k w"},
		{"main.closure.func1", "CLOSURE", "k w n s sum text"},
		{"main.lines", "LINE", "n total text list p v e"},
	}
	argv := []string{"trace", "--json", "-o", filepath.Join(t.TempDir(), "hits")}
	for i, p := range places {
		at := p.function
		if p.mark != "" {
			at = fmt.Sprintf("values_delve.go:%d", lines[p.mark])
		}
		argv = append(argv, fmt.Sprintf("p:e%d %s %s", i, at, p.values))
	}
	cmd := exec.Command(program(t), append(argv, "--", prog)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	have := make([][]map[string]any, len(places))
	out, err := os.ReadFile(argv[3])
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(out) {
		var hit struct {
			Type, Event string
			Args        map[string]any
		}
		d := json.NewDecoder(bytes.NewReader(line))
		d.UseNumber()
		if err := d.Decode(&hit); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if hit.Type == "hit" {
			i, _ := strconv.Atoi(hit.Event[1:])
			have[i] = append(have[i], hit.Args)
		}
	}

	dlv := exec.Command(tool, "exec", "--headless", "--api-version=2", "--check-go-version=false", "--listen=127.0.0.1:0", prog)
	dlv.Env = append(os.Environ(), "HOME="+t.TempDir())
	_, said := fixture.Start(t, dlv)
	address := ""
	for s := bufio.NewScanner(said); address == "" && s.Scan(); {
		_, address, _ = strings.Cut(s.Text(), "listening at: ")
	}
	client, err := jsonrpc.Dial("tcp", address)
	if err != nil {
		t.Fatalf("delve at %q: %v", address, err)
	}
	defer client.Close()
	type arg = map[string]any
	call := func(method string, a arg, reply any) {
		t.Helper()
		if err := client.Call("RPCServer."+method, a, reply); err != nil {
			t.Fatalf("delve's %s: %v", method, err)
		}
	}
	defer func() { _ = client.Call("RPCServer.Detach", arg{"Kill": true}, &struct{}{}) }()
	numbers := map[int]int{} // of delve's breakpoints
	for i, p := range places {
		where := arg{"functionName": p.function, "line": -1} // the very entry
		if p.mark != "" {
			where = arg{"file": source, "line": lines[p.mark]}
		}
		var r struct{ Breakpoint struct{ ID int } }
		call("CreateBreakpoint", arg{"Breakpoint": where}, &r)
		numbers[r.Breakpoint.ID] = i
	}
	n, hits := 0, make([]int, len(places))
	for {
		var r struct {
			State struct {
				Exited        bool
				CurrentThread struct{ BreakPoint struct{ ID int } }
			}
		}
		call("Command", arg{"name": "continue"}, &r)
		if r.State.Exited {
			break
		}
		i, ok := numbers[r.State.CurrentThread.BreakPoint.ID]
		if !ok {
			t.Fatalf("delve stops at %+v", r.State)
		}
		hit := hits[i]
		hits[i]++
		if hit >= len(have[i]) {
			continue
		}
		scope := arg{"Scope": arg{"GoroutineID": -1}, "Cfg": arg{"FollowPointers": true, "MaxVariableRecurse": 6, "MaxStringLen": 200, "MaxArrayValues": 64, "MaxStructFields": -1}}
		var vars struct{ Args, Variables []delveVar }
		call("ListFunctionArgs", scope, &vars)
		call("ListLocalVars", scope, &vars)
		byName := map[string]delveVar{}
		for _, v := range append(vars.Args, vars.Variables...) {
			byName[v.Name] = v
		}
		for _, name := range strings.Fields(places[i].values) {
			name, of, _ := strings.Cut(name, "=")
			v, ok := byName[cmp.Or(strings.TrimPrefix(of, "*"), name)]
			if !ok {
				t.Fatalf("%v: delve has no %s", places[i], name)
			}
			if strings.HasPrefix(of, "*") {
				v = v.Children[0]
			}
			n++
			want := v.shown(t)
			if got := likeDelve(have[i][hit][name], want); !reflect.DeepEqual(got, want) {
				t.Errorf("%v, hit %d: %s:\nkprobe %v\ndelve  %v", places[i], hit+1, name, got, want)
			}
		}
	}
	for i, p := range places {
		if hits[i] != len(have[i]) || hits[i] == 0 {
			t.Errorf("%v: %d hits, delve has %d", p, len(have[i]), hits[i])
		}
	}
	t.Logf("%d values", n)
}
