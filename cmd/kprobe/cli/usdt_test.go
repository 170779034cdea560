package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/symbols"
)

// TestListUSDT: each statically defined probe is listed with a place that is a
// definition, as text and as JSON, and a pattern chooses by name, by provider or by
// both.
func TestListUSDT(t *testing.T) {
	prog := fixture.Build(t, "sym_usdt.c", "-O1")
	f, err := symbols.OpenFile(prog)
	if err != nil {
		t.Fatal(err)
	}
	lines := func(args ...string) []string {
		r := kprobe(t, &fake{}, "", append([]string{"functions", "--usdt", "-x", prog}, args...)...)
		if r.status != 0 || r.err != "" {
			t.Fatalf("%v: %+v", args, r)
		}
		return strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
	}
	all := lines()
	if len(all) != 3 {
		t.Fatalf("%q", all)
	}
	want := []string{"%shop:many", "%shop:sold\t-4@%edi 8f@%xmm0\tsemaphore 0x", "%shop:sold\t-4@$7 8@-16(%rbp,%rax,8)\tsemaphore 0x"}
	for i, line := range all {
		place, rest, _ := strings.Cut(line, "\t")
		if !strings.HasPrefix(rest, want[i]) {
			t.Errorf("%q, want %q", line, want[i])
		}
		def, err := fetch.Parse("p " + place)
		if err != nil || def.Place.Kind != symbols.PlaceVaddr || !slices.ContainsFunc(f.USDT(), func(u symbols.USDT) bool { return uint64(u.Vaddr) == def.Place.Value }) {
			t.Errorf("%s is no place of a probe: %v", place, err)
		}
	}
	for pattern, n := range map[string]int{"sold": 2, "*": 3, "%shop:*": 3, "%*:m*": 1, "shop:many": 1, "sym_usdt:%shop:sold": 2} {
		if got := lines(pattern); len(got) != n {
			t.Errorf("%s lists %q", pattern, got)
		}
	}
	for i, line := range lines("--format", "json") {
		var o struct{ Provider, Name, Module, Place, Vaddr, Semaphore, Args string }
		if err := json.Unmarshal([]byte(line), &o); err != nil || o.Provider != "shop" || o.Module != "sym_usdt" || (o.Semaphore != "") != (o.Name == "sold") {
			t.Errorf("%s: %v", line, err)
		}
		if place, _, _ := strings.Cut(all[i], "\t"); o.Place != place {
			t.Errorf("%s, not %s", o.Place, place)
		}
	}
	if r := kprobe(t, &fake{}, "", "functions", "--usdt", "-x", prog, "none"); r.status != ExitFailure || !strings.Contains(r.err, "no statically defined probe matches none") {
		t.Errorf("%+v", r)
	}
}
