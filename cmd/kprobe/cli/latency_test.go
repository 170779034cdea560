package cli

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/probe"
)

// TestLatencyDefinitions says what --latency makes of what it is given.
func TestLatencyDefinitions(t *testing.T) {
	for word, want := range map[string]string{
		"libc:malloc":                           "r:kprobes/r_libc_malloc_0 libc:malloc took=$duration",
		"p:web/handle handle":                   "r:web/handle handle took=$duration",
		"r7:back libc:read n=$retval if n > 10": "r7:kprobes/back libc:read n=$retval took=$duration if n > 10",
		"libc:str*":                             "r:kprobes/r_libc_str__0 libc:str* took=$duration",
		"main.c:42":                             "r:kprobes/r_main_c_42 main.c:42 took=$duration",
	} {
		f := &fake{}
		r := kprobe(t, f, "", "profile", "--latency", "-p", "41", word)
		if r.status != 0 || len(f.defs) != 1 || f.defs[0].String() != want {
			t.Errorf("%s: %+v, %v, want %s", word, r, f.defs, want)
		}
		if f.opts.MaxActive != 0 || f.opts.Active != 0 || f.opts.CountOnly {
			t.Errorf("%s: %+v", word, f.opts)
		}
	}
	for _, word := range []string{"handle+4", "p handle a=$arg1", "j handle"} {
		r := kprobe(t, &fake{}, "", "profile", "--latency", "-p", "41", word)
		if r.status != ExitMisuse || !strings.Contains(r.err, "kprobe: --latency takes functions and return probes, not "+word) {
			t.Errorf("%s: %+v", word, r)
		}
	}
	f := &fake{}
	if r := kprobe(t, f, "", "profile", "--latency", "--maxactive", "5", "-p", "41", "work"); r.status != 0 || f.opts.MaxActive != 5 {
		t.Errorf("%+v, %d instances", r, f.opts.MaxActive)
	}
}

// returns gives calls of the session's first definition that took those times.
func returns(t *testing.T, times ...uint64) func(context.Context, *fake, probe.Sink) (probe.Summary, error) {
	return func(_ context.Context, s *fake, sink probe.Sink) (probe.Summary, error) {
		d := s.defs[0]
		p, err := d.Compile(nothingKnown{})
		if err != nil {
			t.Error(err)
			return probe.Summary{}, err
		}
		e := &probe.Event{Def: d, Group: d.Group, Name: d.Event, Return: true}
		for _, ns := range times {
			c := &fetch.Context{Regs: &fetch.Regs{}, Time: 5000}
			c.Entry = p.EvalEntry(c, nil)
			c.Time += ns
			data, _ := p.Eval(c, nil)
			if err := sink.Hit(&probe.Hit{Event: e, Program: p, Data: data, Time: 5000 + ns, Func: "work"}); err != nil {
				t.Error(err)
			}
		}
		s.stats = []probe.Stats{{Event: e, Hits: uint64(len(times)), Recorded: uint64(len(times))}}
		return probe.Summary{Stats: s.stats, Alive: []int{41}}, nil
	}
}

func TestLatencyProfile(t *testing.T) {
	f := &fake{run: returns(t, 10, 20, 900)}
	r := kprobe(t, f, "", "profile", "--latency", "-p", "41", "work")
	lines := strings.Split(r.out, "\n")
	if r.status != 0 || strings.Join(strings.Fields(lines[1]), " ") != "work 3 10 310 20 900 900" ||
		!strings.Contains(r.out, "{ latency: ~ 512-1023 } hitcount:          1\n") ||
		!regexp.MustCompile(`^(kprobe: times are in steps of \d+ ns, .*\n)?kprobe: 3 events, 0 lost; process 41 runs on\n$`).MatchString(r.err) {
		t.Errorf("%+v", r)
	}
	f = &fake{run: returns(t, 10, 20, 900)}
	r = kprobe(t, f, "", "profile", "--latency", "--total", "--json", "-q", "-p", "41", "work")
	for _, want := range []string{`"func":"work","count":3,"total":930,"min":10,"avg":310,"p50":20,"p99":900,"max":900,`, `"func":"total","count":3,`, "\n" + `{"type":"end","events":3,`} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%+v lacks %s", r, want)
		}
	}
	if r.err != "" || r.status != 0 {
		t.Errorf("%+v", r)
	}
}
