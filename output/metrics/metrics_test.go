package metrics

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"kprobe/output/spread"
	"kprobe/probe/results"
)

func event(name string) *results.Event { return &results.Event{Group: "kprobes", Name: name} }

// place gives the counters of a place.
func place(e *results.Event, fn, module string, hits uint64) results.Stats {
	return results.Stats{Event: e, Place: fn, Module: module, Hits: hits, Filtered: hits / 2, Lost: 1, Missed: 2, Places: 1, Trapped: 1}
}

// scrape has the server of a source answer, in the format asked for.
func scrape(t *testing.T, s Source, accept string) (text string, contentType string) {
	t.Helper()
	srv, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	if err := srv.Serve(New(s)); err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequest(http.MethodGet, "http://"+srv.Addr()+"/metrics", nil)
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err, string(b))
	}
	return string(b), resp.Header.Get("Content-Type")
}

// parsed is a source's families as Prometheus' own parser reads them.
func parsed(t *testing.T, s Source, format expfmt.FormatType) map[string]*dto.MetricFamily {
	t.Helper()
	accept := "text/plain"
	if format == expfmt.TypeProtoDelim {
		accept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
	}
	text, kind := scrape(t, s, accept)
	got := map[string]*dto.MetricFamily{}
	d := expfmt.NewDecoder(strings.NewReader(text), expfmt.ResponseFormat(http.Header{"Content-Type": {kind}}))
	for {
		var f dto.MetricFamily
		if err := d.Decode(&f); err == io.EOF {
			return got
		} else if err != nil {
			t.Fatal(err)
		}
		got[f.GetName()] = &f
	}
}

func labelsOf(m *dto.Metric) map[string]string {
	out := map[string]string{}
	for _, l := range m.Label {
		out[l.GetName()] = l.GetValue()
	}
	return out
}

// TestCounters: the numbers come out as they went in, under names that Prometheus'
// parser takes, whatever programs are called.
func TestCounters(t *testing.T) {
	odd := "a\"b\\c\nd\xff{}"
	s := Source{
		Places: func() []results.Stats {
			return []results.Stats{place(event("m"), "malloc", "libc.so.6", 10), place(event("o"), odd, "", 4), place(event("o"), "never", "", 0)}
		},
		Processes: func() []results.ProcessStats {
			return []results.ProcessStats{{Event: event("m"), PID: 41, Comm: odd, Counts: results.Counts{Hits: 7}}}
		},
		Version: "1", Revision: "r",
	}
	for _, format := range []expfmt.FormatType{expfmt.TypeTextPlain, expfmt.TypeProtoDelim} {
		got := parsed(t, s, format)
		for name, want := range map[string]float64{"kprobe_hits_total": 10, "kprobe_filtered_total": 5, "kprobe_lost_total": 1, "kprobe_missed_total": 2} {
			f := got[name]
			if f == nil || f.GetType() != dto.MetricType_COUNTER || len(f.Metric) != 3 {
				t.Fatalf("%s: %v", name, f)
			}
			i := slices.IndexFunc(f.Metric, func(m *dto.Metric) bool { return labelsOf(m)["function"] == "malloc" })
			if l := labelsOf(f.Metric[i]); l["event"] != "kprobes/m" || l["module"] != "libc.so.6" || f.Metric[i].Counter.GetValue() != want {
				t.Errorf("%s: %v", name, f.Metric[i])
			}
		}
		p := got["kprobe_process_hits_total"].Metric[0]
		if l := labelsOf(p); l["pid"] != "41" || l["process"] != `a"b\c\nd\xff{}` || p.Counter.GetValue() != 7 {
			t.Errorf("of a process: %v", p)
		}
		if m := got["kprobe_breakpoints"].Metric; len(m) != 2 || m[1].Gauge.GetValue() != 2 {
			t.Errorf("breakpoints: %v", m)
		}
	}
}

// TestCardinality: series are bounded, those that are there stay, and nothing is lost in
// the sum.
func TestCardinality(t *testing.T) {
	n, round := 5*maxPlaces, uint64(1)
	e := event("all")
	s := Source{Places: func() []results.Stats {
		var out []results.Stats
		for i := range n {
			hits := uint64(i%7) * round
			if round > 1 && i%3 == 0 {
				hits += 1000 // others lead now
			}
			out = append(out, results.Stats{Event: e, Place: fmt.Sprint("f", i), Hits: hits})
		}
		return out
	}}
	c := New(s)
	before := map[string]float64{}
	for round = 1; round < 4; round++ {
		f, err := NewFile(filepath.Join(t.TempDir(), "x.prom"))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Of(c); err != nil {
			t.Fatal(err)
		}
		if err := f.Write(); err != nil {
			t.Fatal(err)
		}
		text, _ := os.ReadFile(f.name)
		parser := expfmt.NewTextParser(model.UTF8Validation)
		got, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		ms := got["kprobe_hits_total"].Metric
		if len(ms) > maxPlaces+1 {
			t.Fatalf("%d series", len(ms))
		}
		sum, want := 0.0, 0.0
		for _, st := range s.Places() {
			want += float64(st.Hits)
		}
		now := map[string]float64{}
		for _, m := range ms {
			now[labelsOf(m)["function"]] = m.Counter.GetValue()
			sum += m.Counter.GetValue()
		}
		if sum != want {
			t.Errorf("the sum of all is %g, want %g", sum, want)
		}
		for fn, was := range before {
			if is, ok := now[fn]; !ok || is < was {
				t.Fatalf("%s was %g and is %g (%v)", fn, was, is, ok)
			}
		}
		before = now
	}
}

// calls is a source of one function's times.
func calls(fn string, took ...uint64) Source {
	var s spread.Spread
	for _, ns := range took {
		s.Add(ns)
	}
	e := event("r")
	return Source{
		Places: func() []results.Stats { return nil },
		Calls:  func(yield func(*results.Event, string, *spread.Spread)) { yield(e, fn, &s) },
	}
}

// TestHistogram: both kinds of histogram hold each call once, within 1 % of its time,
// and the exact sum.
func TestHistogram(t *testing.T) {
	took := []uint64{0, 1, 50, 100, 128, 700, 1000, 65_000, 1_000_000, 1_000_001, 250_000_000, 30_000_000_000}
	sum := 0.0
	for _, ns := range took {
		sum += float64(ns) / 1e9
	}
	got := parsed(t, calls("work", took...), expfmt.TypeProtoDelim)["kprobe_call_duration_seconds"]
	if got == nil || len(got.Metric) != 1 {
		t.Fatal(got)
	}
	h := got.Metric[0].Histogram
	if h.GetSampleCount() != uint64(len(took)) || math.Abs(h.GetSampleSum()-sum) > 1e-9 {
		t.Errorf("count %d, sum %g, want %d, %g", h.GetSampleCount(), h.GetSampleSum(), len(took), sum)
	}
	for _, b := range h.Bucket {
		low, high := uint64(0), uint64(0)
		for _, ns := range took {
			if float64(ns)/1e9 <= b.GetUpperBound()*0.99 {
				low++
			}
			if float64(ns)/1e9 <= b.GetUpperBound()*1.01 {
				high++
			}
		}
		if n := b.GetCumulativeCount(); n < low || n > high {
			t.Errorf("le %g has %d, want %d to %d", b.GetUpperBound(), n, low, high)
		}
	}
	// The native one: which bucket each call is in, by the definition of its bounds.
	at, n, total := 0, int64(0), h.GetZeroCount()
	deltas := h.PositiveDelta
	for _, span := range h.PositiveSpan {
		at += int(span.GetOffset())
		for range span.GetLength() {
			n += deltas[0]
			deltas = deltas[1:]
			upper := math.Exp2(float64(at) / math.Exp2(float64(h.GetSchema())))
			lower := math.Exp2(float64(at-1) / math.Exp2(float64(h.GetSchema())))
			in := int64(0)
			for _, ns := range took {
				if v := float64(ns) / 1e9; v > lower*0.99 && v <= upper*1.01 {
					in++
				}
			}
			if n < 1 || n > in {
				t.Errorf("the native bucket (%g, %g] has %d, want at most %d", lower, upper, n, in)
			}
			total += uint64(n)
			at++
		}
	}
	if total != uint64(len(took)) || h.GetZeroCount() != 1 || len(deltas) != 0 {
		t.Errorf("the native buckets have %d, %d of them 0", total, h.GetZeroCount())
	}
}

// TestOpenMetrics: the answer in OpenMetrics ends as it must, and has units' and
// counters' names.
func TestOpenMetrics(t *testing.T) {
	text, kind := scrape(t, calls("work", 900), "application/openmetrics-text;version=1.0.0")
	if !strings.HasPrefix(kind, "application/openmetrics-text") || !strings.HasSuffix(text, "# EOF\n") {
		t.Errorf("%s: …%q", kind, text[max(0, len(text)-40):])
	}
	if !strings.Contains(text, `kprobe_call_duration_seconds_bucket{event="kprobes/r",function="work",le="1e-06"} 1`) {
		t.Error(text)
	}
}

func TestFileIsReplaced(t *testing.T) {
	name := filepath.Join(t.TempDir(), "k.prom")
	f, err := NewFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Of(New(calls("work", 5))); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(name); err == nil {
		t.Error("there is a file before the first numbers")
	}
	for range 2 {
		if err := f.Write(); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != 0o644 || info.Size() == 0 {
			t.Fatal(info, err)
		}
		if left, _ := os.ReadDir(filepath.Dir(name)); len(left) != 1 {
			t.Error(left)
		}
	}
	for _, odd := range []string{"/dev/null", filepath.Dir(name)} {
		if _, err := NewFile(odd); err == nil || !strings.Contains(err.Error(), ErrIrregular.Error()) {
			t.Errorf("%s: %v", odd, err)
		}
	}
	link := filepath.Join(filepath.Dir(name), "link")
	if err := os.Symlink(name, link); err != nil {
		t.Fatal(err)
	}
	if _, err := NewFile(link); err == nil {
		t.Error("a symbolic link was taken")
	}
	if _, err := NewFile(filepath.Join(name, "x")); err == nil {
		t.Error("a file below a file was taken")
	}
}

// TestExemplar: an exemplar is in its bucket, with its labels, in both formats that
// have exemplars.
func TestExemplar(t *testing.T) {
	s := calls("work", 700)
	x := &Exemplars{kept: map[seriesKey][]*dto.Exemplar{}}
	list := make([]*dto.Exemplar, len(bounds)+1)
	list[3] = &dto.Exemplar{Label: []*dto.LabelPair{{Name: new("trace_id"), Value: new("abc")}}, Value: new(7e-7), Timestamp: nil}
	x.kept[seriesKey{event: "kprobes/r", function: "work"}] = list
	s.Exemplars = x
	text, _ := scrape(t, s, "application/openmetrics-text;version=1.0.0")
	if want := `le="1e-06"} 1 # {trace_id="abc"} 7e-07`; !strings.Contains(text, want) {
		t.Errorf("no %s in\n%s", want, text)
	}
	h := parsed(t, s, expfmt.TypeProtoDelim)["kprobe_call_duration_seconds"].Metric[0].Histogram
	if len(h.Exemplars) != 1 || h.Bucket[3].Exemplar.GetValue() != 7e-7 {
		t.Errorf("%v, %v", h.Exemplars, h.Bucket[3])
	}
}
