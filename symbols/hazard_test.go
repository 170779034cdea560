package symbols

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// elfSection is a section of a file that a test writes.
type elfSection struct {
	name  string
	flags elf.SectionFlag
	data  []byte
	size  uint64 // if it isn't len(data)
	at    int    // whose data it shares, counted from 1
}

// writeELF writes a file of sections alone.
func writeELF(t *testing.T, path string, list ...elfSection) {
	t.Helper()
	le := binary.LittleEndian
	b := make([]byte, sizeofEhdr)
	copy(b, "\x7fELF\x02\x01\x01")
	le.PutUint16(b[16:], uint16(elf.ET_EXEC))
	le.PutUint16(b[18:], uint16(elf.EM_X86_64))
	le.PutUint32(b[20:], 1)
	names := "\x00.shstrtab\x00"
	headers := make([]byte, 2*sizeofShdr)
	le.PutUint32(headers[sizeofShdr:], 1)
	le.PutUint32(headers[sizeofShdr+4:], uint32(elf.SHT_STRTAB))
	var offs []int
	for _, s := range list {
		h := make([]byte, sizeofShdr)
		le.PutUint32(h, uint32(len(names)))
		names += s.name + "\x00"
		le.PutUint32(h[4:], uint32(elf.SHT_PROGBITS))
		le.PutUint64(h[8:], uint64(s.flags))
		at := len(b)
		if s.at > 0 {
			at, s.size = offs[s.at-1], uint64(len(list[s.at-1].data))
		}
		offs = append(offs, at)
		b = append(b, s.data...)
		if s.size == 0 {
			s.size = uint64(len(s.data))
		}
		le.PutUint64(h[24:], uint64(at))
		le.PutUint64(h[32:], s.size)
		headers = append(headers, h...)
	}
	le.PutUint64(headers[sizeofShdr+24:], uint64(len(b)))
	le.PutUint64(headers[sizeofShdr+32:], uint64(len(names)))
	b = append(b, names...)
	le.PutUint64(b[40:], uint64(len(b)))
	le.PutUint16(b[58:], sizeofShdr)
	le.PutUint16(b[60:], uint16(len(list)+2))
	le.PutUint16(b[62:], 1)
	b = append(b, headers...)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// packed is a compressed section's contents: n zeros.
func packed(t *testing.T, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	h := make([]byte, 24)
	binary.LittleEndian.PutUint32(h, uint32(elf.COMPRESS_ZLIB))
	binary.LittleEndian.PutUint64(h[8:], uint64(n))
	b.Write(h)
	w := zlib.NewWriter(&b)
	for zeros := make([]byte, 1<<20); n > 0; n -= len(zeros) {
		if _, err := w.Write(zeros[:min(n, len(zeros))]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// soon fails when do takes longer than looking at a few small files may.
func soon(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s: not done after 30 s", what)
	}
}

// TestHazardH1: whatever a file's debug link, its shared part's name and its
// split files' names lead to, asking the file for symbols and debug information
// ends soon.
func TestHazardH1(t *testing.T) {
	fixture.NeedTool(t, "objcopy")
	whole := fixture.Build(t, "sym_main.c", "-O1", "-g", "-DDYNAMIC", otherSource())
	for name, make := range map[string]func(path string) error{
		"FIFO":            func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"terminal":        func(path string) error { return os.Symlink("/dev/tty", path) },
		"endless device":  func(path string) error { return os.Symlink("/dev/zero", path) },
		"file of /proc":   func(path string) error { return os.Symlink("/proc/kmsg", path) },
		"own link":        func(path string) error { return os.Symlink("prog.debug", path) },
		"8 TB of nothing": func(path string) error { return sparse(whole, path, 8<<40) },
		"8 GB of nothing": func(path string) error { return sparse(whole, path, 8<<30) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			prog, debug := filepath.Join(dir, "prog"), filepath.Join(dir, "prog.debug")
			run(t, "objcopy", "--only-keep-debug", whole, debug)
			run(t, "objcopy", "--strip-all", whole, prog)
			run(t, "objcopy", "--add-gnu-debuglink="+debug, prog)
			alt := append([]byte(debug+"\x00"), 1, 2, 3, 4)
			if err := os.WriteFile(filepath.Join(dir, "alt"), alt, 0o600); err != nil {
				t.Fatal(err)
			}
			other := filepath.Join(dir, "other")
			run(t, "objcopy", "--add-section", ".gnu_debugaltlink="+filepath.Join(dir, "alt"), whole, other)
			if err := os.Remove(debug); err != nil {
				t.Fatal(err)
			}
			if err := make(debug); err != nil {
				t.Fatal(err)
			}
			soon(t, name, func() {
				for _, path := range []string{prog, other} {
					f, err := OpenFile(path)
					if err != nil {
						t.Error(err)
						return
					}
					f.Lookup("only_here")
					if s := f.debugData(); path == prog && s.err == nil {
						t.Error("there is debug information")
					}
				}
				if _, ok := splitSections("", debug); ok {
					t.Error("it has split debug information")
				}
				if _, err := OpenFile(debug); err == nil {
					t.Error("it is opened")
				}
			})
		})
	}
}

// sparse makes a copy of a file that ends far behind.
func sparse(from, to string, size int64) error {
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err == nil {
		err = os.Truncate(to, size)
	}
	return err
}

// TestHazardH2: a small file whose sections unpack to much is refused before
// there is much.
func TestHazardH2(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := t.TempDir()
	c := elf.SHF_COMPRESSED
	big, huge := packed(t, 48<<20), packed(t, 192<<20)
	lies := bytes.Clone(huge)
	binary.LittleEndian.PutUint64(lies[8:], 1<<20) // unpacks to more than it says
	short := packed(t, 1<<20)
	binary.LittleEndian.PutUint64(short[8:], 32<<20) // to less
	old := append([]byte("ZLIB\x00\x00\x00\x00\x0c\x00\x00\x00"), huge[24:]...)
	for _, tt := range []struct {
		name string
		list []elfSection
		why  string // "" where it can be read
	}{
		{"some", []elfSection{{name: ".debug_info", flags: c, data: big}}, ""},
		{"much", []elfSection{{name: ".debug_info", flags: c, data: huge}}, "unpacks to more"},
		{"much, the old way", []elfSection{{name: ".zdebug_info", data: old}}, "unpacks to more"},
		{"again and again", []elfSection{{name: ".debug_info", flags: c, data: big}, {name: ".debug_str", flags: c, at: 1}, {name: ".debug_line", flags: c, at: 1}}, "unpacks to more"},
		{"more than it says", []elfSection{{name: ".debug_info", flags: c, data: lies}}, ""},
		{"less than it says", []elfSection{{name: ".debug_info", flags: c, data: short}}, "could not be unpacked"},
	} {
		path := filepath.Join(dir, strings.ReplaceAll(tt.name, " ", "-"))
		writeELF(t, path, tt.list...)
		im, r := openImage("", path)
		if im == nil {
			t.Fatalf("%s: no ELF file", tt.name)
		}
		im.cache = filepath.Join(dir, "cache")
		sec, err := im.debugSections("")
		if tt.why == "" && err != nil || tt.why != "" && (err == nil || !strings.Contains(err.Error(), tt.why)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.why)
		}
		if err == nil && len(sec.Info) > 64<<20 {
			t.Errorf("%s: %d bytes", tt.name, len(sec.Info))
		}
		r.Close()
		list, err := os.ReadDir(im.cache)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, e := range list {
			if st, err := e.Info(); err == nil && st.Size() > 64<<20 {
				t.Errorf("%s: %d bytes are kept", tt.name, st.Size())
			}
		}
	}
}

// TestHazardH2Mini: so is the table of symbols that a file carries in itself.
func TestHazardH2Mini(t *testing.T) {
	fixture.NeedTool(t, "xz")
	dir := t.TempDir()
	zeros := filepath.Join(dir, "zeros")
	if err := os.WriteFile(zeros, make([]byte, 72<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "xz", "-k", "-0", zeros)
	far, err := os.ReadFile(zeros + ".xz")
	if err != nil {
		t.Fatal(err)
	}
	header := far[12 : 12+(int(far[12])+1)*4]
	header[bytes.Index(header, []byte{0x21, 1})+2] = 37 // 1.5 GB
	binary.LittleEndian.PutUint32(header[len(header)-4:], crc32.ChecksumIEEE(header[:len(header)-4]))
	if err := os.WriteFile(zeros+".far", far, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		dict int64
	}{{zeros + ".xz", 256 << 10}, {zeros + ".far", 1536 << 20}} {
		b, err := os.ReadFile(tt.name)
		if err != nil {
			t.Fatal(err)
		}
		if dict, ok := xzDictionary(b); !ok || dict != tt.dict {
			t.Errorf("%s: a dictionary of %d bytes, want %d", tt.name, dict, tt.dict)
		}
		prog := filepath.Join(dir, "prog")
		writeELF(t, prog, elfSection{name: ".gnu_debugdata", data: b})
		f, err := OpenFile(prog)
		if err != nil {
			t.Fatal(err)
		}
		if f.miniTable() != nil {
			t.Errorf("%s has a table of symbols", tt.name)
		}
	}
	for n := range 40 {
		xzDictionary([]byte("\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4\x46\x02\x00\x21\x01\x16\x00\x00\x00\x74\x2f\xe5\xa3\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")[:n])
	}
}
