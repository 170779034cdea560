package output

import (
	"errors"
	"strings"
	"testing"
)

// terminal plays enough of a terminal for what Screen writes: it keeps the
// lines and fails on a sequence that it does not know.
type terminal struct {
	t             *testing.T
	width, height int
	lines         []string
	row, col      int
	writes        int
}

func (m *terminal) Write(b []byte) (int, error) {
	m.writes++
	s := string(b)
	for s != "" {
		switch {
		case strings.HasPrefix(s, "\x1b["):
			end := 2 + strings.IndexFunc(s[2:], func(r rune) bool { return r >= '@' && r <= '~' })
			m.control(s[2:end], s[end])
			s = s[end+1:]
		case s[0] == '\r':
			m.col, s = 0, s[1:]
		case s[0] == '\n':
			m.row, s = m.row+1, s[1:]
		default:
			end := strings.IndexAny(s, "\x1b\r\n")
			if end < 0 {
				end = len(s)
			}
			m.text(s[:end])
			s = s[end:]
		}
	}
	if m.row >= m.height {
		m.t.Errorf("it scrolled: the cursor is on line %d of %d", m.row+1, m.height)
	}
	return len(b), nil
}

func (m *terminal) line() *string {
	for len(m.lines) <= m.row {
		m.lines = append(m.lines, "")
	}
	return &m.lines[m.row]
}

func (m *terminal) text(s string) {
	l := []rune(*m.line())
	for _, r := range s {
		for len(l) <= m.col {
			l = append(l, ' ')
		}
		l[m.col] = r
		m.col++
	}
	if m.col > m.width {
		m.t.Errorf("%q is wider than the terminal", s)
	}
	*m.line() = string(l)
}

func (m *terminal) control(args string, final byte) {
	switch {
	case args == "?2026" && (final == 'h' || final == 'l'):
	case final == 'A':
		n := 0
		for _, d := range args {
			n = n*10 + int(d-'0')
		}
		m.row -= n
	case final == 'K' && args == "":
		l := []rune(*m.line())
		*m.line() = string(l[:min(m.col, len(l))])
	case final == 'J' && args == "":
		l := []rune(*m.line())
		*m.line() = string(l[:min(m.col, len(l))])
		m.lines = m.lines[:m.row+1]
	case final == 'H' && args == "":
		m.row, m.col = 0, 0
	case final == 'J' && args == "2":
		m.lines = nil
	default:
		m.t.Errorf("unknown sequence %q", args+string(final))
	}
}

func (m *terminal) shown() string { return strings.TrimRight(strings.Join(m.lines, "\n"), "\n") }

func TestScreen(t *testing.T) {
	m := &terminal{t: t, width: 10, height: 6, lines: []string{"$ kprobe"}, row: 1}
	s := &Screen{W: m}
	draw := func(lines ...string) {
		t.Helper()
		if err := s.Draw(lines, m.width, m.height-1); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want string) {
		t.Helper()
		if got := m.shown(); got != want {
			t.Errorf("it shows\n%s\nand not\n%s", got, want)
		}
	}
	draw("one", "a line that is too long", "three   ")
	expect("$ kprobe\none\na line tha\nthree")
	draw("eins", "ä", "drei")
	expect("$ kprobe\neins\nä\ndrei")
	draw("1")
	expect("$ kprobe\n1")
	draw("1", "2", "3", "4", "5", "6", "7")
	expect("$ kprobe\n1\n2\n3\n4")
	m.width, m.height = 20, 9
	draw("wider")
	expect("wider")
	if m.writes != 5 {
		t.Errorf("%d writes for 5 pictures", m.writes)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken") }

func TestScreenGivesBackErrors(t *testing.T) {
	if err := (&Screen{W: broken{}}).Draw([]string{"a"}, 80, 24); err == nil {
		t.Error("no error")
	}
}
