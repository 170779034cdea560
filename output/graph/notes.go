package graph

import (
	"math"
	"strings"

	"kprobe/fetch"
	"kprobe/internal/quote"
	"kprobe/output/recording"
	"kprobe/output/report"
)

// Notes makes what a calls.Tracker is to keep of hits for a Printer. The zero value is
// ready; it is not safe for concurrent use.
type Notes struct {
	// Failed, if set, says which results mean that a call failed; else those do that
	// mostly do (failure).
	Failed *fetch.Condition
	// Unbound is why Failed can't be asked of the events that were met; nil: it could be
	// of one at least, or none was met.
	Unbound error

	bound map[*recording.Event]*fetch.BoundCondition
	some  bool // one could be bound
	vals  []fetch.ConditionValue
}

// Note is what is kept of a hit: the text of its values, of a return an Out.
func (n *Notes) Note(h *recording.Hit) any {
	var b []byte
	failed := false
	for i, f := range h.Event.Fields {
		if len(b) > 0 {
			b = append(b, ", "...)
		}
		v := &h.Values[i]
		b = report.AppendValue(append(quote.AppendPlain(b, f.Name), '='), f.Kind, v)
		if h.Event.Return && f.Name == Result {
			errno, bad := failure(f, v)
			failed = bad
			if errno != "" {
				b = append(append(append(b, " ("...), errno...), ')')
			}
		}
	}
	if !h.Event.Return {
		return string(b)
	}
	if n.Failed != nil {
		failed = n.fails(h)
	}
	return Out{string(b), failed}
}

// fails asks the condition.
func (n *Notes) fails(h *recording.Hit) bool {
	b, seen := n.bound[h.Event]
	if !seen {
		fields := make([]fetch.Field, len(h.Event.Fields))
		for i, f := range h.Event.Fields {
			fields[i] = fetch.Field{Name: f.Name, Type: typeOf(f)}
		}
		var err error
		if b, err = n.Failed.Bind(fields); err == nil {
			n.some, n.Unbound = true, nil
		} else if !n.some {
			n.Unbound = err
		}
		if n.bound == nil {
			n.bound = map[*recording.Event]*fetch.BoundCondition{}
		}
		n.bound[h.Event] = b
	}
	if b == nil {
		return false
	}
	n.vals = n.vals[:0]
	for i, f := range h.Event.Fields {
		v := &h.Values[i]
		out := fetch.ConditionValue{Fault: v.State == recording.Fault, Int: v.Int, Text: v.Text}
		switch {
		case f.Kind == recording.Float:
			out.Int = math.Float64bits(v.Float)
		case f.Kind == recording.Hex && !isPointer(f):
			out.Int = extended(v.Int)
		}
		// What is printed as an address in place of a number can't be compared.
		out.Fault = out.Fault || v.State == recording.Printed && f.Kind < recording.Text
		n.vals = append(n.vals, out)
	}
	took := uint64(0)
	if h.Entry != 0 {
		took = h.Time - h.Entry
	}
	return b.Match(&fetch.ConditionHit{
		PID: h.Thread.PID, TID: h.Thread.TID, CPU: h.CPU, Comm: h.Thread.Comm, IP: h.Place.Addr, Duration: took,
	}, n.vals)
}

// typeOf is a field's type as a condition takes it: what is printed in hexadecimal and is
// no pointer, such as the result of a function without debug information, is signed.
func typeOf(f recording.Field) fetch.Type {
	switch {
	case f.Kind == recording.Signed, f.Kind == recording.Hex && !isPointer(f):
		return fetch.Type{Base: fetch.Signed, Size: 8}
	case f.Kind == recording.Unsigned, f.Kind == recording.Hex:
		return fetch.Type{Base: fetch.Unsigned, Size: 8}
	case f.Kind == recording.Float:
		return fetch.Type{Base: fetch.Float, Size: 8}
	}
	return fetch.Type{Base: fetch.String, Size: 8}
}

func isPointer(f recording.Field) bool {
	return strings.HasSuffix(f.Type, "*") || strings.HasSuffix(f.Type, "symbol")
}

// extended is a number in a register that may be an int.
func extended(v uint64) uint64 {
	if v == uint64(uint32(v)) {
		return uint64(int64(int32(v)))
	}
	return v
}
