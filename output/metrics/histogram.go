package metrics

import (
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"

	"kprobe/output/spread"
)

// schema is that of native histograms: a bucket's bounds are 2^(2^-schema), 2.2 %, apart,
// twice as much as cells of spreads are wide.
const schema = 5

// bounds are those of the classic buckets, in seconds. They are the same for all
// functions, so that the buckets of several can be added up.
var bounds = [...]float64{
	1e-7, 2.5e-7, 5e-7, 1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4,
	1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
}

// histogram is a prometheus.Metric that is a classic and a native histogram of the
// times that a function's calls took. Counts and the sum are exact; in which bucket a
// call is, within 1 % of its time.
type histogram struct {
	start     time.Time
	key       seriesKey
	took      *spread.Spread
	exemplars []*dto.Exemplar // by classic bucket, the last is +Inf; nil: none
}

// Desc implements prometheus.Metric.
func (h *histogram) Desc() *prometheus.Desc { return callsDesc }

// Write implements prometheus.Metric.
func (h *histogram) Write(to *dto.Metric) error {
	to.Label = prometheus.MakeLabelPairs(callsDesc, []string{h.key.event, h.key.function})
	native := map[int]int64{}
	zeros := uint64(0)
	classic := make([]uint64, len(bounds))
	for c := range h.took.Cells {
		at := float64(c.From+(c.To-c.From)/2) / 1e9
		for i, le := range bounds {
			if at <= le {
				classic[i] += c.Count
			}
		}
		if c.To == 0 {
			zeros += c.Count
		} else {
			native[int(math.Ceil(math.Log2(at)*(1<<schema)))] += int64(c.Count)
		}
	}
	out := &dto.Histogram{
		CreatedTimestamp: timestamppb.New(h.start),
		SampleCount:      new(h.took.Count), SampleSum: new(float64(h.took.Sum) / 1e9),
		Schema: new(int32(schema)), ZeroThreshold: new(prometheus.DefNativeHistogramZeroThreshold), ZeroCount: new(zeros),
	}
	for i, n := range classic {
		b := &dto.Bucket{UpperBound: new(bounds[i]), CumulativeCount: new(n)}
		if h.exemplars != nil {
			b.Exemplar = h.exemplars[i]
		}
		out.Bucket = append(out.Bucket, b)
	}
	if h.exemplars != nil && h.exemplars[len(bounds)] != nil {
		out.Bucket = append(out.Bucket, &dto.Bucket{
			UpperBound: new(math.Inf(1)), CumulativeCount: new(h.took.Count), Exemplar: h.exemplars[len(bounds)],
		})
	}
	for _, e := range h.exemplars {
		if e != nil {
			out.Exemplars = append(out.Exemplars, e)
		}
	}
	slices.SortFunc(out.Exemplars, func(a, b *dto.Exemplar) int { return a.GetTimestamp().AsTime().Compare(b.GetTimestamp().AsTime()) })
	out.PositiveSpan, out.PositiveDelta = spans(native)
	to.Histogram = out
	return nil
}

// spans lays buckets out as protobuf has them: runs of buckets that follow each other,
// and each count as the difference to the one before.
func spans(buckets map[int]int64) (out []*dto.BucketSpan, deltas []int64) {
	var at []int
	for i := range buckets {
		at = append(at, i)
	}
	slices.Sort(at)
	next, before := 0, int64(0)
	for n, i := range at {
		if n == 0 || i != next {
			out = append(out, &dto.BucketSpan{Offset: new(int32(i - next)), Length: new(uint32(0))})
		}
		*out[len(out)-1].Length++
		deltas = append(deltas, buckets[i]-before)
		next, before = i+1, buckets[i]
	}
	if len(out) == 0 {
		out = []*dto.BucketSpan{{Offset: new(int32(0)), Length: new(uint32(0))}} // says that it is native
	}
	return out, deltas
}
