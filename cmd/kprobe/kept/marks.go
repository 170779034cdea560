package kept

import (
	"bytes"
	"strings"
)

// disabledMark begins the comment that says that an event is disabled. The
// kernel's syntax has no word for it; as a comment it does no harm elsewhere.
const disabledMark = "# disabled: "

// disabledEvent gives the event of a line that is such a comment.
func disabledEvent(text string) (name string, ok bool) {
	name, ok = strings.CutPrefix(strings.TrimSpace(text), disabledMark)
	return strings.TrimSpace(name), ok
}

// maxMark bounds a line that is kept until its end comes, in bytes. A line of definitions may be
// as long (fetch.ParseFile).
const maxMark = 1 << 17

// Marks collects, from the text that is written to it, the events that it
// calls disabled. The zero Marks has seen none.
type Marks struct {
	line  []byte // the begin of a line whose end has not come
	found []string
}

// Write implements io.Writer. It never fails.
func (m *Marks) Write(b []byte) (int, error) {
	n := len(b)
	for {
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			m.add(b)
			return n, nil
		}
		if len(m.line) == 0 {
			m.look(b[:end])
		} else {
			m.add(b[:end])
			m.look(m.line)
			m.line = m.line[:0]
		}
		b = bytes.TrimLeft(b[end+1:], "\n")
	}
}

func (m *Marks) add(b []byte) { m.line = append(m.line, b[:min(len(b), maxMark-len(m.line))]...) }

func (m *Marks) look(line []byte) {
	if !bytes.Contains(line, []byte(disabledMark)) {
		return
	}
	if name, ok := disabledEvent(string(line)); ok {
		m.found = append(m.found, name)
	}
}

// Disabled lists the events, as GRP/EVENT.
func (m *Marks) Disabled() []string {
	m.look(m.line) // the last may have no end
	m.line = nil
	return m.found
}
