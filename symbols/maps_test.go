package symbols

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMaps(t *testing.T) {
	tests := []struct {
		name, line string
		want       Mapping
	}{
		{"text of a program", "55a0c3a00000-55a0c3a21000 r-xp 00002000 fd:01 1234567                    /usr/bin/cat",
			Mapping{Start: 0x55a0c3a00000, End: 0x55a0c3a21000, Read: true, Exec: true, Off: 0x2000, Major: 0xfd, Minor: 1, Inode: 1234567, Path: "/usr/bin/cat"}},
		{"anonymous", "7f0000000000-7f0000001000 rw-p 00000000 00:00 0 ",
			Mapping{Start: 0x7f0000000000, End: 0x7f0000001000, Read: true, Write: true}},
		{"anonymous without a blank at the end", "7f0000000000-7f0000001000 ---p 00000000 00:00 0",
			Mapping{Start: 0x7f0000000000, End: 0x7f0000001000}},
		{"two blanks in a path", "1000-2000 rwxs 0 00:00 5    /tmp/a  b",
			Mapping{Start: 0x1000, End: 0x2000, Read: true, Write: true, Exec: true, Shared: true, Inode: 5, Path: "/tmp/a  b"}},
		{"blank at the end of a path", "1000-2000 r--p 0 00:00 5    /tmp/a ",
			Mapping{Start: 0x1000, End: 0x2000, Read: true, Inode: 5, Path: "/tmp/a "}},
		{"line feed in a path", `1000-2000 r--p 0 00:00 5    /tmp/a\012b`,
			Mapping{Start: 0x1000, End: 0x2000, Read: true, Inode: 5, Path: "/tmp/a\nb"}},
		{"deleted", "1000-2000 r-xp 0 00:00 5    /tmp/a (deleted)",
			Mapping{Start: 0x1000, End: 0x2000, Read: true, Exec: true, Inode: 5, Path: "/tmp/a", Deleted: true}},
		{"deleted, and named so", "1000-2000 r-xp 0 00:00 5    /tmp/a (deleted) (deleted)",
			Mapping{Start: 0x1000, End: 0x2000, Read: true, Exec: true, Inode: 5, Path: "/tmp/a (deleted)", Deleted: true}},
		{"the vsyscall page", "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]",
			Mapping{Start: 0xffffffffff600000, End: 0xffffffffff601000, Exec: true, Path: "[vsyscall]"}},
		{"offset and inode of 64 bits", "1000-2000 r--p ffffffffffffffff ffffffff:ffffffff 18446744073709551615 /x",
			Mapping{Start: 0x1000, End: 0x2000, Read: true, Off: ^Off(0), Major: ^uint32(0), Minor: ^uint32(0), Inode: ^uint64(0), Path: "/x"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, end := range []string{"", "\n"} {
				got, err := ParseMaps([]byte(tt.line + end))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff([]Mapping{tt.want}, got); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestParseMapsRefuses(t *testing.T) {
	const good = "1000-2000 r--p 0 00:00 5 /x\n"
	for _, bad := range []string{
		"x", "1000", "1000-2000", "1000-2000 r--p", "1000-2000 r-p 0 00:00 0", "2000-1000 r--p 0 00:00 0",
		"g000-2000 r--p 0 00:00 0", "1000-2000 r--p 0 00:00 x", "-2000 r--p 0 00:00 0", "1000-2000 r--p 0 0000 0",
		"10000000000000000-20000000000000000 r--p 0 00:00 0", "1000-2000 r--p 0 100000000:0 0",
		"1000-2000 r--p 0 00:00 18446744073709551616", "1000-2000 r--p 0 00:00 5a",
	} {
		t.Run(bad, func(t *testing.T) {
			got, err := ParseMaps([]byte(good + bad + "\n" + good))
			if !errors.Is(err, ErrBadMaps) || !strings.Contains(err.Error(), "line 2") {
				t.Errorf("error %v, want ErrBadMaps of line 2", err)
			}
			if len(got) != 1 {
				t.Errorf("%d mappings before the bad line, want 1", len(got))
			}
		})
	}
}

func TestReadMaps(t *testing.T) {
	maps, err := ReadMaps(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	stack := false
	for i, m := range maps {
		stack = stack || m.Path == "[stack]" && m.Write && !m.Exec
		if i > 0 && m.Start < maps[i-1].End {
			t.Errorf("mapping %d starts before the one before it ends", i)
		}
	}
	if !stack {
		t.Error("this process has no stack")
	}
	if _, err := ReadMaps(1 << 30); !errors.Is(err, ErrGone) {
		t.Errorf("maps of no process: %v, want ErrGone", err)
	}
}

// lineOf writes a mapping as the kernel does (show_map_vma).
func lineOf(m Mapping) string {
	path := strings.ReplaceAll(m.Path, "\n", `\012`)
	if m.Deleted {
		path += " (deleted)"
	}
	s := fmt.Sprintf("%08x-%08x %s %08x %02x:%02x %d ", uint64(m.Start), uint64(m.End), m.Perms(), uint64(m.Off), m.Major, m.Minor, m.Inode)
	if path != "" {
		s = fmt.Sprintf("%-72s %s", s, path)
	}
	return s + "\n"
}

func FuzzMaps(f *testing.F) {
	own, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(own)
	f.Add([]byte("1000-2000 r--p 0 00:00 5 /x (deleted)\n"))
	f.Add([]byte("-\n \n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		maps, err := ParseMaps(text)
		if err != nil {
			return
		}
		var b bytes.Buffer
		for _, m := range maps {
			b.WriteString(lineOf(m))
		}
		again, err := ParseMaps(b.Bytes())
		if err != nil {
			t.Fatalf("what was parsed, written, can't be parsed: %v\n%s", err, b.Bytes())
		}
		if diff := cmp.Diff(maps, again); diff != "" {
			t.Errorf("written and parsed again:\n%s", diff)
		}
	})
}

func BenchmarkParseMaps(b *testing.B) {
	text := bytes.Repeat([]byte("55a0c3a00000-55a0c3a21000 r-xp 00002000 fd:01 1234567                    /usr/lib/x86_64-linux-gnu/libc.so.6\n"), 1000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseMaps(text); err != nil {
			b.Fatal(err)
		}
	}
}
