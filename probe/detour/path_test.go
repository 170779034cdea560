package detour

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kprobe/fetch"
	"kprobe/probe/asm"
	"kprobe/probe/ring"
)

func openNull(t testing.TB) int {
	t.Helper()
	fd, err := syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// readNull answers for a child whose descriptor 3 is openNull's; the test
// program has opened none that stays.
func readNull(fd int) (string, error) {
	if fd == 3 || fd == 0 {
		return os.DevNull, nil
	}
	return "", syscall.ENOENT
}

func create(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestPaths(t *testing.T) {
	dir := t.TempDir()
	deep := dir
	for range 8 {
		deep = filepath.Join(deep, strings.Repeat("d", 90))
	}
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	exact := filepath.Join(dir, strings.Repeat("e", pathSize-len(dir)-1))
	m := newMachine(t, 40, 1<<20)
	for _, name := range []string{filepath.Join(dir, "plain"), filepath.Join(deep, "file.log"), exact, exact[:pathSize-1], filepath.Join(dir, "gone")} {
		m.files = append(m.files, create(t, name))
	}
	if err := os.Remove(filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	const plain, long, full, almost, gone = 3, 4, 5, 6, 7
	file := func(at int, magic, fd uint32) uint64 {
		binary.LittleEndian.PutUint32(m.at(dataAt + uint64(at))[:4], magic)
		binary.LittleEndian.PutUint32(m.at(dataAt + uint64(at) + fileFD)[:4], fd)
		return dataAt + uint64(at)
	}
	stream, closed, noFile := file(0, 0xfbad2488, long), file(256, 0xfbad2488, ^uint32(0)), file(512, 0xfbac2488, plain)
	name := func(fd int) string {
		s := m.files[fd-3].Name()
		if fd == gone {
			s += " (deleted)"
		}
		return s
	}
	const bad = "(fault)"
	text := func(v *fetch.Value) string {
		switch {
		case v.Fault:
			return bad
		case v.Truncated:
			return string(v.Bytes) + "..."
		}
		return string(v.Bytes)
	}
	cases := []struct {
		def  string
		di   uint64
		want []string // nil: filtered
	}{
		{"p f %di:%pd", plain, []string{name(plain)}},
		{"p f %di:%pd", long, []string{name(long)}},
		{"p f %di:%pd", full, []string{name(full)}},
		{"p f %di:%pd", almost, []string{name(almost)}},
		{"p f %di:%pd", gone, []string{name(gone)}},
		{"p f %di:%pd", 1<<63 | plain, []string{name(plain)}},
		{"p f %di:%pD", 1<<63 | plain, []string{bad}},
		{"p f %di:%pD", 0xffffffff00000003, []string{name(plain)}},
		{"p f %di:%pd", 1 << 20, []string{bad}},
		{"p f %di:%pd", 1<<20 - 1, []string{bad}},
		{"p f %di:%pd", ^uint64(0), []string{bad}},
		{"p f %di:%pD", stream, []string{name(long)}},
		{"p f %di:%pD", closed, []string{bad}},
		{"p f %di:%pD", noFile, []string{bad}},
		{"p f %di:%pD", dataAt + dataSize - 8, []string{bad}},
		{"p f %di:%pD", dataAt + dataSize, []string{bad}},
		{`p f %di:%pd \"x" \4:%pd +0(%si):string \7:%pd`, long, []string{name(long), "x", name(long), "after", name(gone)}},
		{`p f a=%di:%pd if a == "` + name(plain) + `"`, plain, []string{name(plain)}},
		{`p f a=%di:%pd if a == "` + name(plain) + `"`, long, nil},
		{`p f a=%di:%pd if a != "x"`, long, []string{name(long)}},
		{`p f a=%di:%pd if a ~ "` + dir + `/*"`, long, []string{name(long)}},
		{`p f a=%di:%pd if a ~ "` + dir + `/x*"`, long, nil},
		{`p f a=%di:%pd if a ~ "*"`, gone, []string{name(gone)}},
		{`p f a=%di:%pd if a != "x"`, 99, nil},
		{"p f %di:%pd +0(%si):string" + strings.Repeat(" +0(%dx):string", 8), long, nil}, // more than a record holds, below
	}
	copy(m.at(dataAt+4096), "after\x00")
	big := m.at(dataAt + 8192)[:8192]
	for i := range big {
		big[i] = 'b'
	}
	var progs []*fetch.Program
	for i, c := range cases {
		prog := must(t, c.def)
		progs = append(progs, prog)
		d, err := m.place(func(base uint64, tail func(*asm.Code) error) (*Detour, error) {
			return Build(base, m.params(), []Probe{{ID: uint32(i + 1), Program: prog}}, tail)
		})
		if err != nil {
			t.Fatalf("%s: %v", c.def, err)
		}
		var r fetch.Regs
		r.GPR[fetch.DI], r.GPR[fetch.SI], r.GPR[fetch.DX], r.GPR[fetch.SP], r.Flags = c.di, dataAt+4096, dataAt+8192, stackAt+uint64(i)*stackSize+4096, 2
		m.setCase(i, d.Base, &r, &fetch.Vector{})
	}
	m.run(len(cases))
	var head uint64
	for i, c := range cases {
		m.checkCase(i)
		now := binary.LittleEndian.Uint64(m.at(caseAt + uint64(i)*caseSize)[caseHead:])
		rec := m.at(ringAt + head)[:now-head]
		head = now
		want := c.want
		if i == len(cases)-1 {
			want = []string{name(long), "after"}
			for rest := fetch.MaxData - progs[i].Fixed - fetch.MaxString - len("after"); len(want) < len(progs[i].Fields()); rest -= fetch.MaxString {
				want = append(want, strings.Repeat("b", max(0, min(rest, fetch.MaxString)))+"...")
			}
		}
		if len(rec) == 0 || want == nil {
			if want != nil || len(rec) != 0 {
				t.Errorf("%s of %#x: record of %d bytes", c.def, c.di, len(rec))
			}
			continue
		}
		vals, err := progs[i].Decode(rec[ring.DataOff:], nil)
		if err != nil {
			t.Fatal(err)
		}
		for k := range want {
			if got := text(&vals[k]); got != want[k] {
				t.Errorf("%s of %#x: value %d is %.300q, want %.300q", c.def, c.di, k, got, want[k])
			}
		}
	}
}
