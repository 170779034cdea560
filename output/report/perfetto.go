package report

import (
	"bufio"
	"encoding/binary"
	"hash/fnv"
	"io"
	"strconv"

	"kprobe/output/calls"
)

// Perfetto is the calls.Sink that writes a trace for Perfetto's viewer, ui.perfetto.dev:
// a track for each thread or goroutine, on which calls are slices (protos/perfetto/trace, the
// messages Trace, TracePacket, TrackDescriptor, TrackEvent). Numbers of fields are
// those of the schema. Calls that work for a trace have its id, and arrows lead from one
// to the next of other threads.
type Perfetto struct {
	w       *bufio.Writer
	threads map[calls.Track]uint64
	procs   map[int]uint64
	last    map[uint64]uint64 // the time of a track's last event
	now     func() uint64
}

// NewPerfetto begins a trace. now gives the time at which calls that are open end.
func NewPerfetto(w io.Writer, now func() uint64) *Perfetto {
	return &Perfetto{w: bufio.NewWriter(w), threads: map[calls.Track]uint64{}, procs: map[int]uint64{}, last: map[uint64]uint64{}, now: now}
}

// message appends fields of protocol buffers.
type message []byte

func (m message) number(field int, v uint64) message {
	return binary.AppendUvarint(binary.AppendUvarint(m, uint64(field)<<3), v)
}

func (m message) bytes(field int, b []byte) message {
	return append(binary.AppendUvarint(binary.AppendUvarint(m, uint64(field)<<3|2), uint64(len(b))), b...)
}

func (m message) fixed(field int, v uint64) message {
	return binary.LittleEndian.AppendUint64(binary.AppendUvarint(m, uint64(field)<<3|1), v)
}

func (m message) text(field int, s string) message { return m.bytes(field, []byte(s)) }

// The fields that are used.
const (
	tracePacket = 1

	packetTimestamp  = 8
	packetSequence   = 10
	packetTrackEvent = 11
	packetFlags      = 13
	packetClock      = 58
	packetDescriptor = 60
	packetDropped    = 42

	clockMonotonic = 3
	stateCleared   = 1
	droppedLoss    = 1

	descriptorUUID    = 1
	descriptorName    = 2
	descriptorProcess = 3
	descriptorThread  = 4
	descriptorParent  = 5

	processPID  = 1
	processName = 6
	threadPID   = 1
	threadTID   = 2
	threadComm  = 5

	eventAnnotation = 4
	eventType       = 9
	eventTrack      = 11
	eventName       = 23
	eventCategory   = 22
	eventFlow       = 47
	eventRequest    = 53

	sliceBegin = 1
	sliceEnd   = 2

	annotationName   = 10
	annotationString = 6
)

// put writes a packet. A bufio.Writer keeps its first error.
func (p *Perfetto) put(m message) error {
	m = m.number(packetSequence, 1)
	_, err := p.w.Write(message(nil).bytes(tracePacket, m))
	return err
}

// track is the thread's track, which is described at its first use.
func (p *Perfetto) track(c *calls.Call) (uint64, error) {
	t, key := c.Thread, c.Track()
	if id := p.threads[key]; id != 0 {
		return id, nil
	}
	parent := p.procs[t.PID]
	if parent == 0 {
		parent = uint64(len(p.procs)+len(p.threads)) + 1
		p.procs[t.PID] = parent
		process := message(nil).number(processPID, uint64(t.PID)).text(processName, t.Comm)
		d := message(nil).number(descriptorUUID, parent).bytes(descriptorProcess, process)
		first := message(nil)
		if len(p.procs) == 1 {
			first = first.number(packetFlags, stateCleared)
		}
		if err := p.put(first.bytes(packetDescriptor, d)); err != nil {
			return 0, err
		}
	}
	id := uint64(len(p.procs)+len(p.threads)) + 1
	p.threads[key] = id
	if key.G != 0 {
		d := message(nil).number(descriptorUUID, id).number(descriptorParent, parent).text(descriptorName, "goroutine 0x"+strconv.FormatUint(key.G, 16))
		return id, p.put(message(nil).bytes(packetDescriptor, d))
	}
	thread := message(nil).number(threadPID, uint64(t.PID)).number(threadTID, uint64(t.TID)).text(threadComm, t.Comm)
	d := message(nil).number(descriptorUUID, id).number(descriptorParent, parent).bytes(descriptorThread, thread)
	return id, p.put(message(nil).bytes(packetDescriptor, d))
}

// Enter implements calls.Sink.
func (p *Perfetto) Enter(c *calls.Call) error {
	id, err := p.track(c)
	if err != nil {
		return err
	}
	e := message(nil).number(eventType, sliceBegin).number(eventTrack, id).text(eventCategory, "kprobe").text(eventName, frame(c.Func))
	if n, ok := c.In.(note); ok && n.text != "" {
		e = e.bytes(eventAnnotation, message(nil).text(annotationName, "args").text(annotationString, n.text))
	}
	if trace := traceOfCall(c); trace != "" {
		e = e.text(eventRequest, trace)
		if c.Parent == nil || traceOfCall(c.Parent) != trace {
			e = e.fixed(eventFlow, flow(trace))
		}
	}
	return p.event(id, c.Entry, e)
}

// traceOfCall is the trace that a call works for, as its entry says, or, where only its
// return is seen, that.
func traceOfCall(c *calls.Call) string {
	for _, x := range [...]any{c.In, c.Out} {
		if n, ok := x.(note); ok && n.trace != "" {
			return n.trace
		}
	}
	return ""
}

// flow is the number of a trace's arrows.
func flow(trace string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, trace) // a hash takes all
	return h.Sum64()
}

// Leave implements calls.Sink.
func (p *Perfetto) Leave(c *calls.Call) error {
	id, err := p.track(c)
	if err != nil {
		return err
	}
	end := c.Leave
	if end == 0 {
		end = max(p.now(), c.Entry)
	}
	e := message(nil).number(eventType, sliceEnd).number(eventTrack, id)
	how := ""
	switch c.End {
	case calls.Left:
		how = "no return was seen"
	case calls.Open:
		how = "has not returned"
	}
	if how != "" {
		e = e.bytes(eventAnnotation, message(nil).text(annotationName, "end").text(annotationString, how))
	}
	if n, ok := c.Out.(note); ok && n.text != "" {
		e = e.bytes(eventAnnotation, message(nil).text(annotationName, "result").text(annotationString, n.text))
	}
	return p.event(id, end, e)
}

// event writes an event of a track. Slices of a track must nest: none begins or ends
// before what was told already, as a call would whose entry's hit was lost.
func (p *Perfetto) event(track, time uint64, e message) error {
	time = max(time, p.last[track])
	p.last[track] = time
	return p.put(message(nil).number(packetTimestamp, time).number(packetClock, clockMonotonic).bytes(packetTrackEvent, e))
}

// Close ends the trace; lost says that hits are missing.
func (p *Perfetto) Close(lost bool) error {
	if lost {
		if err := p.put(message(nil).number(packetDropped, droppedLoss)); err != nil {
			return err
		}
	}
	return p.w.Flush()
}
