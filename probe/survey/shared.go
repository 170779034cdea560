package survey

import "kprobe/symbols"

// SharedRule says why memory that is shared can't be probed. What is private is
// copied when it is written to (a memfd's, too), what is shared isn't.
const SharedRule = "its memory is mapped shared (MAP_SHARED): a breakpoint would be written into the file, and into every process that maps it"

// Shared reports whether a byte of a module from at on is mapped shared.
func Shared(m *symbols.Module, at symbols.Addr, n int) bool {
	if m == nil {
		return false
	}
	for i := range m.Maps {
		if r := &m.Maps[i]; r.Shared && at < r.End && r.Start < at+symbols.Addr(n) {
			return true
		}
	}
	return false
}
