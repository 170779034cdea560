package symbols

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestUSDT compares the probes of programs with what readelf says of their notes:
// of one of our own, whole, stripped and as a fixed-address program, and of those
// that are on the machine.
func TestUSDT(t *testing.T) {
	fixture.NeedTool(t, "readelf")
	whole := fixture.Build(t, "sym_usdt.c", "-O1")
	stripped := filepath.Join(t.TempDir(), "stripped")
	run(t, "strip", "-o", stripped, whole)
	programs := []string{whole, stripped, fixture.Build(t, "sym_usdt.c", "-O1", "-no-pie")}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/postgres", "/usr/bin/python3.*[0-9]", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, found...)
	}
	for i, path := range programs {
		f, err := OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got, want := f.USDT(), readelfUSDT(t, path)
		if !slices.Equal(got, want) {
			t.Errorf("%s has %d probes, by readelf %d:\n%v\n%v", path, len(got), len(want), got, want)
		}
		if i > 2 {
			continue
		}
		var said []string
		for _, u := range got {
			said = append(said, fmt.Sprintf("%s:%s(%s) %t", u.Provider, u.Name, u.Args, u.Semaphore != 0))
			if code, err := f.Text(u.Vaddr, 1); err != nil || code[0] != 0x90 {
				t.Errorf("%s: at %v is % x, %v", path, u.Vaddr, code, err)
			}
		}
		slices.Sort(said)
		if all := strings.Join(said, "\n"); all != "shop:many() false\nshop:sold(-4@$7 8@-16(%rbp,%rax,8)) true\nshop:sold(-4@%edi 8f@%xmm0) true" {
			t.Errorf("%s has\n%s", path, all)
		}
	}
}

// readelfUSDT reads the notes by readelf.
func readelfUSDT(t *testing.T, path string) (out []USDT) {
	t.Helper()
	text, err := exec.Command("readelf", "-n", path).Output()
	if err != nil {
		t.Fatalf("readelf %s: %v", path, err)
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		last := len(out) - 1
		switch {
		case key == "Provider":
			out = append(out, USDT{Provider: value})
			continue
		case last < 0:
			continue // a note of another kind
		}
		switch key {
		case "Name":
			out[last].Name = value
		case "Location":
			var at, semaphore string
			_, rest, _ := strings.Cut(line, "Location: ")
			at, rest, _ = strings.Cut(rest, ", Base: ")
			_, semaphore, _ = strings.Cut(rest, ", Semaphore: ")
			out[last].Vaddr, out[last].Semaphore = hexOf(t, at), hexOf(t, semaphore)
		case "Arguments":
			out[last].Args = value
		}
	}
	return out
}

func hexOf(t *testing.T, s string) Vaddr {
	t.Helper()
	v, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(s), "0x"), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return Vaddr(v)
}

// usdtNote is a note as compilers write it.
func usdtNote(owner string, typ uint32, at, base, semaphore uint64, texts string) []byte {
	le := binary.LittleEndian
	desc := le.AppendUint64(le.AppendUint64(le.AppendUint64(nil, at), base), semaphore)
	desc = append(desc, texts...)
	b := le.AppendUint32(nil, uint32(len(owner)))
	b = le.AppendUint32(le.AppendUint32(b, uint32(len(desc))), typ)
	b = append(b, owner...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	b = append(b, desc...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// TestUSDTNotes: addresses move with the base section, notes of others and
// broken ones are left out, and bytes of any kind end.
func TestUSDTNotes(t *testing.T) {
	const owner = "stapsdt\x00"
	moved := func(base Vaddr) Vaddr { return 0x5000 - base }
	one := usdtNote(owner, 3, 0x1010, 0x4000, 0x4800, "p\x00n\x00-4@%edi\x00")
	b := slices.Concat(one,
		usdtNote("GNU\x00", 3, 1, 2, 3, "p\x00n\x00\x00"),
		usdtNote(owner, 4, 1, 2, 3, "p\x00n\x00\x00"),
		usdtNote(owner, 3, 1, 2, 3, "p\x00n"),
		usdtNote(owner, 3, 1, 2, 3, "\x00n\x00\x00"),
		usdtNote(owner, 3, 0x1020, 0x4000, 0, "p\x00m\x00\x00"))
	want := []USDT{
		{Provider: "p", Name: "n", Args: "-4@%edi", Vaddr: 0x2010, Semaphore: 0x5800},
		{Provider: "p", Name: "m", Vaddr: 0x2020},
	}
	if got := usdtNotes(b, moved); !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	for n := range b {
		if got := usdtNotes(b[:n:n], moved); len(got) > 2 || len(got) > 0 && got[0] != want[0] {
			t.Fatalf("of %d bytes: %+v", n, got)
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		c := slices.Clone(b)
		for range 1 + rnd.IntN(4) {
			c[rnd.IntN(len(c))] = byte(rnd.Uint32())
		}
		if got := usdtNotes(c, moved); len(got) > len(c)/12 {
			t.Fatalf("%d probes of %d bytes", len(got), len(c))
		}
	}
}
