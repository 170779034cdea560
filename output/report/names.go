package report

import (
	"strconv"
	"strings"

	"kprobe/output/calls"
	"kprobe/output/recording"
)

// placeName is the name of the place of a hit. That of a statically defined probe is the probe's own,
// because one function may have several.
func placeName(h *recording.Hit) string {
	if h.Event.Static {
		return h.Event.Name
	}
	return h.Place.String()
}

// trackName is the name of the goroutine or thread that made a call.
func trackName(c *calls.Call) string {
	if c.G != 0 {
		return "goroutine 0x" + strconv.FormatUint(c.G, 16)
	}
	return threadName(c.Thread)
}

// threadName is a thread's name in tables: its name and number.
func threadName(t *recording.Thread) string { return t.Comm + "-" + strconv.Itoa(t.TID) }

// Bytes reports whether a value's name says that it counts bytes.
func Bytes(name string) bool {
	switch strings.ToLower(name) {
	case "size", "bytes", "nbytes", "len", "length", "n_bytes", "sz":
		return true
	}
	return false
}
