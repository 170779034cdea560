package kept

import "strings"

// disabledMark begins the comment that says that an event is disabled. The
// kernel's syntax has no word for it; as a comment it does no harm elsewhere.
const disabledMark = "# disabled: "

// disabledEvent gives the event of a line that is such a comment.
func disabledEvent(text string) (name string, ok bool) {
	name, ok = strings.CutPrefix(strings.TrimSpace(text), disabledMark)
	return strings.TrimSpace(name), ok
}

// Marks collects, from the text that is written to it, the events that it
// calls disabled. The zero Marks has seen none.
type Marks struct{ text strings.Builder }

// Write implements io.Writer. It never fails.
func (m *Marks) Write(b []byte) (int, error) { return m.text.Write(b) }

// Disabled lists the events, as GRP/EVENT.
func (m *Marks) Disabled() []string {
	var out []string
	for text := range strings.Lines(m.text.String()) {
		if name, ok := disabledEvent(text); ok {
			out = append(out, name)
		}
	}
	return out
}
