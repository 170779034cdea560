package symbols

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// systemFiles are files of the machine that the tests compare with binutils.
// Of a large one every step-th symbol is looked at, unless KPROBE_TEST_FULL is
// set.
func systemFiles(t *testing.T) map[string]int {
	t.Helper()
	files := map[string]int{}
	for _, f := range []struct {
		step  int
		paths []string
	}{
		{1, []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"}},
		{1, []string{"/lib64/ld-linux-x86-64.so.2"}},
		{5, []string{"/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/lib64/libstdc++.so.6", "/usr/lib/libstdc++.so.6"}},
		{5, []string{"/usr/bin/python3"}},
		{97, []string{"/usr/bin/node"}},
	} {
		for _, p := range f.paths {
			if q, err := filepath.EvalSymlinks(p); err == nil {
				files[q] = f.step
				if os.Getenv("KPROBE_TEST_FULL") == "1" {
					files[q] = 1
				}
				break
			}
		}
	}
	if len(files) == 0 {
		fixture.Missing(t, "a system with glibc")
	}
	return files
}

// readelfSymbol is a line of readelf -sW.
type readelfSymbol struct {
	vaddr         Vaddr
	size          uint64
	typ, bind     string
	name, version string
	isDefault     bool
}

var readelfLine = regexp.MustCompile(`^ *\d+: ([0-9a-f]+) +(\d+|0x[0-9a-f]+) (\w+) +(\w+) +\w+ +(?:\[.*\] +)?(\w+) (\S+)`)

func readelfSymbols(t *testing.T, path, which string) []readelfSymbol {
	t.Helper()
	cmd := exec.Command(fixture.NeedTool(t, "readelf"), "-W", which, path)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var out []readelfSymbol
	lines := bufio.NewScanner(pipe)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m := readelfLine.FindStringSubmatch(lines.Text())
		if m == nil || m[5] == "UND" || m[3] == "SECTION" || m[3] == "FILE" {
			continue
		}
		v, err := strconv.ParseUint(m[1], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		size, err := strconv.ParseUint(m[2], 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		s := readelfSymbol{vaddr: Vaddr(v), size: size, typ: m[3], bind: m[4], name: m[6]}
		if i := strings.IndexByte(s.name, '@'); i > 0 {
			s.isDefault = strings.HasPrefix(s.name[i:], "@@")
			s.version = strings.TrimLeft(s.name[i:], "@")
			s.name = s.name[:i]
		}
		out = append(out, s)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestSymbolsAgreeWithReadelf looks up every defined symbol that readelf lists,
// by name and by address.
func TestSymbolsAgreeWithReadelf(t *testing.T) {
	kinds := map[string]SymbolKind{"FUNC": KindFunc, "IFUNC": KindIFunc, "OBJECT": KindObject, "TLS": KindTLS}
	binds := map[string]Binding{"LOCAL": Local, "GLOBAL": Global, "WEAK": Weak, "UNIQUE": Global}
	for path, step := range systemFiles(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f, err := OpenFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.tables().err; err != nil {
				t.Error(err)
			}
			list := readelfSymbols(t, path, "--syms")
			checked, bad := 0, 0
			for i := 0; i < len(list) && bad < 20; i += step {
				want := list[i]
				kind, known := kinds[want.typ]
				if !known || len(want.name) == 0 {
					continue
				}
				checked++
				name := want.name
				if want.version != "" {
					name += "@" + want.version
				}
				found := f.Lookup(name)
				if !slices.ContainsFunc(found, func(s Symbol) bool {
					return s.Name == want.name && s.Vaddr == want.vaddr && s.Size == want.size && s.Kind == kind && s.Binding == binds[want.bind] &&
						// Old linkers write NAME@@VERSION in .symtab for a copy of another file's variable.
						(want.version == "" || s.Version == want.version && (s.Default == want.isDefault || kind == KindObject))
				}) {
					t.Errorf("%s: found %+v, readelf has %+v", name, found, want)
					bad++
				}
				if kind != KindFunc && kind != KindIFunc {
					continue
				}
				for _, at := range []Vaddr{want.vaddr, want.vaddr + Vaddr(want.size/2)} {
					fn, ok := f.FuncAt(at)
					if !ok || at < fn.Start || at >= fn.End || fn.Start < want.vaddr || at == want.vaddr && fn.Start != at {
						t.Errorf("FuncAt(%v) = %+v %v, readelf has %+v there", at, fn, ok, want)
						bad++
					}
				}
			}
			if checked < 20 {
				t.Errorf("only %d symbols compared", checked)
			}
			t.Logf("%d of %d symbols", checked, len(list))
		})
	}
}

// TestNoFunctionBeforeSignalReturn: unwinding information begins a byte before
// libc's signal trampoline, where no function does.
func TestNoFunctionBeforeSignalReturn(t *testing.T) {
	f, err := OpenFile(fixture.NeedFile(t, "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"))
	if err != nil {
		t.Fatal(err)
	}
	ranges := 0
	for _, r := range f.fdes() {
		if f.beforeSignalReturn(r.start) {
			ranges++
		}
	}
	if ranges != 1 {
		t.Errorf("%d ranges begin before a signal trampoline, want 1", ranges)
	}
	for fn := range f.EachFunc() {
		if fn.Symbol.Kind == KindFDE && f.beforeSignalReturn(fn.Start) {
			t.Errorf("%s is listed as a function", fn.Symbol.Name)
		}
	}
}

// TestDefaultVersions: NAME alone is what NAME@@VERSION is.
func TestDefaultVersions(t *testing.T) {
	path := fixture.NeedFile(t, "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6")
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	several := 0
	for _, want := range readelfSymbols(t, path, "--dyn-syms") {
		if !want.isDefault || want.typ != "FUNC" {
			continue
		}
		got := f.Lookup(want.name)
		if len(got) == 0 || got[0].Vaddr != want.vaddr || got[0].Version != want.version {
			t.Errorf("%s is %+v first, want version %s at %v", want.name, got, want.version, want.vaddr)
		}
		if len(got) > 1 && got[0].Version != got[1].Version && got[1].Version != "" {
			several++
		}
		if exact := f.Lookup(want.name + "@@" + want.version); len(exact) == 0 || exact[0].Vaddr != want.vaddr {
			t.Errorf("%s@@%s is %+v", want.name, want.version, exact)
		}
	}
	if several == 0 {
		t.Error("no function of libc has an old version beside the current one")
	}
	if got := f.Lookup("open@@GLIBC_2.0"); got != nil {
		t.Errorf("open@@GLIBC_2.0 is %v, libc has no such version", got)
	}
}

var frameLine = regexp.MustCompile(`(?m)^[0-9a-f]+ [0-9a-f]+ [0-9a-f]+ FDE .*pc=([0-9a-f]+)\.\.([0-9a-f]+)$`)

// TestFramesAgreeWithReadelf compares the ranges of .eh_frame.
func TestFramesAgreeWithReadelf(t *testing.T) {
	for path := range systemFiles(t) {
		if st, err := os.Stat(path); err != nil || st.Size() > 20<<20 && os.Getenv("KPROBE_TEST_FULL") != "1" {
			continue // readelf takes some seconds for it
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			f, err := OpenFile(path)
			if err != nil {
				t.Fatal(err)
			}
			want := map[fde]bool{}
			for _, m := range frameLine.FindAllStringSubmatch(run(t, "readelf", "--debug-dump=frames,no-follow-links", path), -1) {
				start, err := strconv.ParseUint(m[1], 16, 64)
				if err != nil {
					t.Fatal(err)
				}
				end, err := strconv.ParseUint(m[2], 16, 64)
				if err != nil {
					t.Fatal(err)
				}
				if end > start {
					want[fde{Vaddr(start), Vaddr(end)}] = true
				}
			}
			got := f.fdes()
			for _, r := range got {
				if !want[r] {
					t.Errorf("range %v-%v is not in readelf's list", r.start, r.end)
				}
				at, ok := fdeAt(got, r.start+(r.end-r.start)/2)
				if !ok || at.start > r.start+(r.end-r.start)/2 || at.end <= at.start {
					t.Errorf("the range around the middle of %v-%v is %v-%v %v", r.start, r.end, at.start, at.end, ok)
				}
			}
			if len(got) != len(want) || len(got) == 0 {
				t.Errorf("%d ranges, readelf has %d", len(got), len(want))
			}
		})
	}
}

var stubLine = regexp.MustCompile(`(?m)^([0-9a-f]+) <([^>+]+)@plt>:$`)

// TestStubsAgreeWithObjdump compares the names of PLT stubs.
func TestStubsAgreeWithObjdump(t *testing.T) {
	paths := map[string]string{
		"lazy":              fixture.Build(t, "sym_main.c", "-O1", "-DDYNAMIC", "-Wl,-z,lazy", otherSource()),
		"not PIE":           fixture.Build(t, "sym_main.c", "-O1", "-DDYNAMIC", "-no-pie", "-Wl,-z,now", otherSource()),
		"with IBT":          fixture.Build(t, "sym_main.c", "-O1", "-DDYNAMIC", "-fcf-protection=full", "-Wl,-z,ibtplt", otherSource()),
		"system's python":   fixture.NeedFile(t, "/usr/bin/python3", "/usr/bin/gdb"),
		"system's C++ libs": fixture.NeedFile(t, "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/lib64/libstdc++.so.6", "/usr/lib/libstdc++.so.6"),
	}
	for name, path := range paths {
		t.Run(name, func(t *testing.T) {
			f, err := OpenFile(path)
			if err != nil {
				t.Fatal(err)
			}
			out := run(t, "objdump", "-d", "-j", ".plt", "-j", ".plt.sec", "-j", ".plt.got", path)
			n := 0
			for _, m := range stubLine.FindAllStringSubmatch(out, -1) {
				v, err := strconv.ParseUint(m[1], 16, 64)
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(m[2], "*ABS*") {
					continue
				}
				n++
				function, _, _ := strings.Cut(m[2], "@") // objdump shows the version too
				fn, ok := f.FuncAt(Vaddr(v))
				if !ok || fn.Symbol.Name != function+"@plt" || fn.Symbol.Kind != KindPLT || fn.Start != Vaddr(v) {
					t.Errorf("at %#x: %+v %v, objdump has %s", v, fn, ok, m[2])
				}
				if !slices.ContainsFunc(f.Lookup(function+"@plt"), func(s Symbol) bool { return s.Vaddr == Vaddr(v) }) {
					t.Errorf("%s@plt is not found", function)
				}
			}
			if n < 3 {
				t.Errorf("objdump names only %d stubs", n)
			}
		})
	}
}
