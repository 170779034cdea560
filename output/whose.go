package output

import (
	"kprobe/internal/quote"
	"kprobe/probe/results"
)

// Parts of lines that many hits have in common are formatted once: whose a hit is, and the
// second in which it was.

// whose is the part of a line that tells whose a hit is.
type whose struct {
	comm          string
	pid, tid, cpu int
	text          []byte // empty: none yet
}

// appendWhose appends the columns of thread and CPU, in JSON what is from "comm" to "cpu".
func (f *Formatter) appendWhose(dst []byte, h *results.Hit) []byte {
	w := &f.whose[(h.TID^h.CPU)&(len(f.whose)-1)]
	if len(w.text) == 0 || w.tid != h.TID || w.cpu != h.CPU || w.pid != h.PID || w.comm != h.Comm {
		*w = whose{comm: h.Comm, pid: h.PID, tid: h.TID, cpu: h.CPU, text: w.text[:0]}
		if f.Form == JSON {
			w.text = appendWhoseJSON(w.text, h)
		} else {
			w.text = appendWhoseText(w.text, h)
		}
	}
	return append(dst, w.text...)
}

func appendWhoseText(dst []byte, h *results.Hit) []byte {
	comm := quote.Plain(h.Comm)
	for n := len(comm); n < 16; n++ {
		dst = append(dst, ' ')
	}
	dst = append(dst, comm...)
	dst = append(dst, '-')
	start := len(dst)
	dst = appendPadded(dst, uint64(h.TID), 0, ' ')
	for len(dst)-start < 7 {
		dst = append(dst, ' ')
	}
	dst = append(dst, ' ', '[')
	dst = appendPadded(dst, uint64(h.CPU), 3, '0')
	return append(dst, ']', ' ', ' ')
}

func appendWhoseJSON(dst []byte, h *results.Hit) []byte {
	dst = quote.AppendJSON(dst, h.Comm)
	dst = appendPadded(append(dst, `,"pid":`...), uint64(h.PID), 1, ' ')
	dst = appendPadded(append(dst, `,"tid":`...), uint64(h.TID), 1, ' ')
	return appendPadded(append(dst, `,"cpu":`...), uint64(h.CPU), 1, ' ')
}

// second is the text of a second.
type second struct {
	at   uint64
	text []byte // empty: none yet
}

// appendTime appends the time of a hit, given in microseconds, as seconds with six digits
// behind the point, or as a time of day.
func (f *Formatter) appendTime(dst []byte, us uint64) []byte {
	t := &f.second
	if at := us / 1e6; len(t.text) == 0 || t.at != at {
		t.at = at
		if f.Form == JSON {
			t.text = append(appendPadded(t.text[:0], at, 1, ' '), '.')
		} else {
			t.text = f.Clock.appendSecond(t.text[:0], at)
		}
	}
	return appendMicros(append(dst, t.text...), us%1e6)
}
