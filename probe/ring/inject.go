package ring

// What a session counts that changes calls stands in the reader's area, in bytes from its
// start: how many calls its filters have passed, modulo one more than the last that is
// left alone, and how many it has changed. Detours count there and the tracer does, by
// locked instructions.
const (
	InjectPassed  = 1024
	InjectChanged = 1032
)

// Injection is where those counters start, for InjectPassed and InjectChanged.
func (l *Layout) Injection() int64 { return l.Area(l.Areas()) }
