package symbols

import (
	"debug/elf"
	"os/exec"
	"testing"

	"kprobe/internal/fixture"
)

// bothTables reads a file's .symtab and .dynsym anew, as they are in the file.
func bothTables(t *testing.T, path string) (full, dyn *table) {
	t.Helper()
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if full, err = f.im.readTable(elf.SHT_SYMTAB); err != nil || full == nil {
		t.Fatalf(".symtab: %v, %v", full, err)
	}
	if dyn, err = f.im.readTable(elf.SHT_DYNSYM); err != nil || dyn == nil {
		t.Fatalf(".dynsym: %v, %v", dyn, err)
	}
	f.im.readVersions(dyn)
	return full, dyn
}

// TestShareNames wants each dynamic symbol to be the same with its name among those of
// all symbols, and found as before; and nearly all of a large program's to be there.
func TestShareNames(t *testing.T) {
	_, small := openFixture(t, "sym_names.cc", "-O0", "-rdynamic")
	node, err := exec.LookPath(fixture.NeedTool(t, "node"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, part string }{{small.Path, "a"}, {node, "uv_run"}} {
		full, dyn := bothTables(t, c.path)
		_, want := bothTables(t, c.path)
		dyn.share(full)
		if dyn.names != full.names {
			t.Errorf("%s: the names are not shared", c.path)
		}
		if len(dyn.more) > len(want.names)/2 && len(want.names) > shareFrom {
			t.Errorf("%s: %d bytes of %d are kept twice", c.path, len(dyn.more), len(want.names))
		}
		had, has := want.holding(c.part), dyn.holding(c.part)
		held := 0
		for i := range want.symbols {
			a, b := &want.symbols[i], &dyn.symbols[i]
			x, y := want.symbol(a), dyn.symbol(b)
			if x != y {
				t.Fatalf("%s: symbol %d is %+v, was %+v", c.path, i, y, x)
			}
			if x.Name != "" && (!dyn.is(b, x.Name) || dyn.is(b, x.Name+"x") || dyn.is(b, x.Name[1:])) {
				t.Errorf("%s: %s isn't found by its name alone", c.path, x.Name)
			}
			if x.Name != "" && had.in(a.name) != has.in(b.name) {
				t.Errorf("%s: %s is found by %q: %v, was %v", c.path, x.Name, c.part, has.in(b.name), had.in(a.name))
			}
			if had.in(a.name) {
				held++
			}
		}
		if held == 0 {
			t.Errorf("%s: no name holds %q", c.path, c.part)
		}
	}
}

// TestShareNamesOfNonsense wants a table to stay as it is where nothing would be saved:
// many symbols whose names are parts of one long text.
func TestShareNamesOfNonsense(t *testing.T) {
	long := make([]byte, 1000)
	for i := range long {
		long[i] = 'a'
	}
	dyn := &table{names: "\x00" + string(long) + "\x00"}
	full := &table{names: "\x00b\x00"}
	for i := range 900 {
		dyn.symbols = append(dyn.symbols, rawSymbol{name: uint32(i + 1), vaddr: 7, shndx: 1})
		full.symbols = append(full.symbols, rawSymbol{name: 1, vaddr: 7, shndx: 1})
	}
	was := *dyn
	dyn.share(full)
	if dyn.names != was.names || dyn.more != "" || dyn.symbols[5].name != 6 {
		t.Errorf("%d bytes more", len(dyn.more))
	}
	if got := dyn.text(^uint32(0)); got != "" {
		t.Errorf("behind all names is %q", got)
	}
}
