package kept

import (
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// TestMarks: marks are found however the text is cut into writes.
func TestMarks(t *testing.T) {
	text := "\n\n# disabled: a/b\n  # disabled: c/d \r\np:a/b work\n# no disabled: x/y\n" + strings.Repeat("#", 2*maxMark) + "# disabled: long/line\n# disabled: e/f"
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(text), "bytes": iotest.OneByteReader(strings.NewReader(text)), "halves": iotest.HalfReader(strings.NewReader(text)),
	} {
		m := &Marks{}
		if _, err := io.Copy(struct{ io.Writer }{m}, struct{ io.Reader }{r}); err != nil {
			t.Fatal(err)
		}
		if got := m.Disabled(); !slices.Equal(got, []string{"a/b", "c/d", "e/f"}) {
			t.Errorf("%s: %q", name, got)
		}
	}
	m := &Marks{}
	blank := []byte(strings.Repeat("\n", 1<<16))
	if n := testing.AllocsPerRun(10, func() { _, _ = m.Write(blank) }); n != 0 {
		t.Errorf("%v allocations for blank lines", n)
	}
}
