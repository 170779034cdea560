package report

import (
	"bufio"
	"io"
	"math"
	"strconv"

	"github.com/google/pprof/profile"

	"kprobe/output/recording"
)

// Folded writes a line for each path of calls, the outermost first: names with
// semicolons between them, a blank, and the nanoseconds that were spent there and
// not below, or of stacks how often they came, or the sum of Weight. It is what flame graph tools take.
func (r *Report) Folded(w io.Writer) error {
	b := bufio.NewWriter(w)
	var line []byte
	r.walk(func(path []*recording.Place, n *node) {
		line = line[:0]
		for i, p := range path {
			if i > 0 {
				line = append(line, ';')
			}
			line = append(line, frame(p)...)
		}
		line = append(strconv.AppendUint(append(line, ' '), r.measure(n), 10), '\n')
		// A bufio.Writer keeps its first error for Flush.
		_, _ = b.Write(line)
	})
	return b.Flush()
}

// Pprof writes a profile for go tool pprof and what else reads its format: calls, or
// hits, and nanoseconds of wall time, by path. It isn't sampled: every call is in it.
func (r *Report) Pprof(w io.Writer, in *recording.Reader) error {
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "calls", Unit: "count"}},
		PeriodType: &profile.ValueType{Type: "calls", Unit: "count"}, Period: 1,
		TimeNanos:     in.Header.Wall + int64(r.First-in.Header.Mono),
		DurationNanos: int64(r.Last - r.First),
	}
	if r.timed() {
		p.SampleType = append(p.SampleType, &profile.ValueType{Type: "wall", Unit: "nanoseconds"})
		p.DefaultSampleType = "wall"
	}
	if r.Weight != "" {
		unit := "count"
		if Bytes(r.Weight) {
			unit = "bytes"
		}
		p.SampleType = append(p.SampleType, &profile.ValueType{Type: r.Weight, Unit: unit})
		p.DefaultSampleType = r.Weight
	}
	for _, m := range in.Modules[:min(len(in.Modules), 1)] {
		for _, x := range m.List {
			if x.End > x.Start {
				p.Mapping = append(p.Mapping, &profile.Mapping{ID: uint64(len(p.Mapping) + 1), Start: x.Start, Limit: x.End, File: x.Path, BuildID: x.BuildID, HasFunctions: true})
			}
		}
	}
	locations := map[string]*profile.Location{}
	location := func(at *recording.Place) *profile.Location {
		name := frame(at)
		if l := locations[name]; l != nil {
			return l
		}
		fn := &profile.Function{ID: uint64(len(p.Function) + 1), Name: name, SystemName: name, Filename: at.Module}
		p.Function = append(p.Function, fn)
		l := &profile.Location{ID: uint64(len(p.Location) + 1), Address: at.Addr, Line: []profile.Line{{Function: fn}}}
		for _, m := range p.Mapping {
			if at.Addr >= m.Start && at.Addr < m.Limit {
				l.Mapping = m
			}
		}
		p.Location = append(p.Location, l)
		locations[name] = l
		return l
	}
	r.walk(func(path []*recording.Place, n *node) {
		s := &profile.Sample{Value: []int64{int64(n.calls)}}
		if len(p.SampleType) > 1 {
			s.Value = append(s.Value, int64(min(n.self, math.MaxInt64)))
		}
		for i := len(path) - 1; i >= 0; i-- {
			s.Location = append(s.Location, location(path[i]))
		}
		p.Sample = append(p.Sample, s)
	})
	if err := p.CheckValid(); err != nil {
		return err
	}
	return p.Write(w)
}
