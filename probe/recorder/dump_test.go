package recorder

import (
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPackedDumps: of a compressed core dump it is said that it is to be unpacked, and by what.
func TestPackedDumps(t *testing.T) {
	name := filepath.Join(t.TempDir(), "core")
	for tool, head := range map[string]string{
		"zstd": "\x28\xb5\x2f\xfd\x24", "lz4": "\x04\x22\x4d\x18\x64", "xz": "\xfd7zXZ\x00\x00", "bzip2": "BZh9", "gzip": "",
		"": "a text, which isn't compressed",
	} {
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if tool == "gzip" {
			w := gzip.NewWriter(f)
			_, err = w.Write([]byte("\x7fELF"))
			err = errors.Join(err, w.Close())
		} else {
			_, err = f.WriteString(head + strings.Repeat("x", 100))
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		want := ErrNoRings.Error()
		if tool != "" {
			want += ": it is compressed; unpack it first (" + tool + " -d)"
		}
		if _, _, err := OpenFile(name); !errors.Is(err, ErrNoRings) || err.Error() != want {
			t.Errorf("%s: %v", tool, err)
		}
	}
}
