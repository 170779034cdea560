package ring

// The counters of a session that changes calls are in the reader's area, at these offsets: how
// many calls its filters have passed, modulo one more than the last that is left alone, and how
// many it has changed. Detours and the tracer count there, by locked instructions.
const (
	InjectPassed  = 1024
	InjectChanged = 1032
)

// Injection is where those counters start, for InjectPassed and InjectChanged.
func (l *Layout) Injection() int64 { return l.Area(l.Areas()) }
