package output

import (
	"strconv"

	"kprobe/internal/quote"
)

// AppendCalls appends functions' latencies in columns like those of the kernel's
// kprobe_profile: function, number of calls, and the shortest, average, median, 99th percentile
// and longest time in nanoseconds. If times of calls were lost, which are in none of these,
// their number follows.
func AppendCalls(dst []byte, calls []Calls) []byte {
	const column = 13
	dst = append(dst, "# "...)
	dst = appendLeft(dst, "function", 44)
	dst = appendRight(append(dst, ' '), "calls", 15)
	for _, name := range [...]string{"min", "avg", "p50", "p99", "max/ns"} {
		dst = appendRight(append(dst, ' '), name, column)
	}
	lost := anyLost(calls)
	if lost {
		dst = appendRight(append(dst, ' '), "lost", column)
	}
	dst = append(dst, '\n')
	for i := range calls {
		c := &calls[i]
		dst = appendLeft(append(dst, ' ', ' '), quote.Plain(c.Func), 44)
		dst = appendPadded(append(dst, ' '), c.Count, 15, ' ')
		for _, v := range [...]uint64{c.Min, c.Average, c.P50, c.P99, c.Max} {
			dst = appendPadded(append(dst, ' '), v, column, ' ')
		}
		if lost {
			dst = appendPadded(append(dst, ' '), c.Lost, column, ' ')
		}
		dst = append(dst, '\n')
	}
	return dst
}

// AppendSteps appends the histogram of a function's latencies in the form of
// the kernel's hist triggers with .buckets; nothing for one without calls.
func AppendSteps(dst []byte, c *Calls) []byte {
	if c.Count == 0 {
		return dst
	}
	dst = append(quote.AppendPlain(append(dst, "\n# latency histogram of "...), c.Func), ", nanoseconds\n\n"...)
	for _, s := range c.Steps {
		dst = appendPadded(append(dst, "{ latency: ~ "...), s.From, 0, ' ')
		dst = appendPadded(append(dst, '-'), s.To, 0, ' ')
		dst = appendPadded(append(dst, " } hitcount: "...), s.Count, 10, ' ')
		dst = append(dst, '\n')
	}
	return dst
}

// AppendCallsJSON appends one object for each function. Times are nanoseconds;
// seconds is when they were taken, since the start; below 0 it is left out.
func AppendCallsJSON(dst []byte, calls []Calls, seconds float64) []byte {
	for i := range calls {
		c := &calls[i]
		dst = append(dst, `{"type":"latency",`...)
		if seconds >= 0 {
			dst = append(strconv.AppendFloat(append(dst, `"time":`...), seconds, 'f', 3, 64), ',')
		}
		dst = quote.AppendJSON(append(dst, `"group":`...), c.Group)
		dst = quote.AppendJSON(append(dst, `,"event":`...), c.Event)
		dst = quote.AppendJSON(append(dst, `,"func":`...), c.Func)
		for _, f := range [...]struct {
			name string
			v    uint64
		}{
			{`,"count":`, c.Count}, {`,"total":`, c.Total}, {`,"min":`, c.Min}, {`,"avg":`, c.Average},
			{`,"p50":`, c.P50}, {`,"p99":`, c.P99}, {`,"max":`, c.Max},
		} {
			dst = appendCount(append(dst, f.name...), f.v)
		}
		if c.Lost > 0 {
			dst = appendCount(append(dst, `,"lost":`...), c.Lost)
			dst = appendPercent(append(dst, `,"lost_percent":`...), c.Lost, c.Count+c.Lost)
		}
		dst = append(dst, `,"histogram":[`...)
		for j, s := range c.Steps {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = appendCount(append(dst, `{"from":`...), s.From)
			dst = appendCount(append(dst, `,"to":`...), s.To)
			dst = append(appendCount(append(dst, `,"count":`...), s.Count), '}')
		}
		dst = append(dst, ']', '}', '\n')
	}
	return dst
}

// appendLeft appends s and blanks up to width bytes.
func appendLeft(dst []byte, s string, width int) []byte {
	dst = append(dst, s...)
	for n := len(s); n < width; n++ {
		dst = append(dst, ' ')
	}
	return dst
}

// appendRight appends s, behind blanks up to width bytes.
func appendRight(dst []byte, s string, width int) []byte {
	for n := len(s); n < width; n++ {
		dst = append(dst, ' ')
	}
	return append(dst, s...)
}

// nanoseconds gives a time in three digits and the unit that fits.
func nanoseconds(ns uint64) string {
	if ns < 1000 {
		return strconv.FormatUint(ns, 10) + " ns"
	}
	v := float64(ns)
	for _, unit := range [...]string{" µs", " ms", " s"} {
		v /= 1000
		switch {
		case unit != " s" && v >= 999.5:
			continue
		case v < 9.995:
			return strconv.FormatFloat(v, 'f', 2, 64) + unit
		case v < 99.95:
			return strconv.FormatFloat(v, 'f', 1, 64) + unit
		}
		return strconv.FormatFloat(v, 'f', 0, 64) + unit
	}
	return ""
}
