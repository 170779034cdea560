package cli

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kprobe/probe"
)

func TestIsAddress(t *testing.T) {
	for word, want := range map[string]bool{
		":9464": true, "localhost:9464": true, "[::1]:0": true, "10.0.0.1:65535": true,
		"x.prom": false, "./a:1": false, "/tmp/a:1": false, "a:b": false, ":70000": false, "::1": false, "": false,
	} {
		if isAddress(word) != want {
			t.Errorf("%q is an address: %v", word, !want)
		}
	}
}

// counting is an engine that has counted three hits at a place.
func counting(do func()) *fake {
	ev := &probe.Event{Group: "kprobes", Name: "p_work_0"}
	st := probe.Stats{Event: ev, Hits: 3, Recorded: 3, Places: 1, Place: "work"}
	process := probe.ProcessStats{Event: ev, PID: 1, Comm: "prog", Counts: st.Counts()}
	return &fake{
		stats: []probe.Stats{st}, places: []probe.Stats{st}, processes: []probe.ProcessStats{process}, run: whileRunning(do),
	}
}

const (
	threeCounted   = `kprobe_hits_total{event="kprobes/p_work_0",function="work",module=""} 3`
	threeOfProcess = `kprobe_process_hits_total{event="kprobes/p_work_0",pid="1",process="prog"} 3`
)

// TestMetricsByHTTP: while the trace runs, and not behind it.
func TestMetricsByHTTP(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().String()
	free.Close()
	got := ""
	e := counting(func() {
		resp, err := http.Get("http://" + at + "/metrics")
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		got = string(b)
	})
	r := kprobe(t, e, "", "profile", "--metrics", at, "-p", "1", "work")
	if r.status != 0 || !strings.Contains(got, threeCounted) || !strings.Contains(got, threeOfProcess) || !strings.Contains(r.err, "kprobe: metrics at http://"+at+"/metrics\n") {
		t.Errorf("status %d\n%s\n%s", r.status, got, r.err)
	}
	if c, err := net.Dial("tcp", at); err == nil {
		c.Close()
		t.Error("something listens after the trace")
	}
}

func TestMetricsFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "k.prom")
	r := kprobe(t, counting(func() {}), "", "profile", "--metrics", name, "-p", "1", "work")
	text, _ := os.ReadFile(name)
	// Behind the end there are no processes any more.
	if r.status != 0 || !strings.Contains(string(text), threeCounted) || strings.Contains(string(text), threeOfProcess) {
		t.Errorf("status %d\n%s\n%s", r.status, text, r.err)
	}
}

// TestMetricsRefused: what can't be is said before a process is touched.
func TestMetricsRefused(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for word, want := range map[string]string{
		"/dev/null":            "write /dev/null: it is not a regular file",
		t.TempDir():            "it is not a regular file",
		"/does/not/exist/x":    "no such file or directory",
		busy.Addr().String():   "address already in use",
		"256.0.0.1:9464":       "--metrics: listen at 256.0.0.1:9464:",
		"/proc/self/x.metrics": "--metrics: ",
	} {
		e := counting(func() { t.Error("it ran") })
		r := kprobe(t, e, "", "profile", "--metrics", word, "-p", "1", "work")
		if r.status != 1 || !strings.Contains(r.err, want) || e.pids != nil {
			t.Errorf("%s: status %d, attached to %v: %s", word, r.status, e.pids, r.err)
		}
	}
}

// TestMetricsOfLives: the counters of another kprobe's session are given out until it ends.
func TestMetricsOfLives(t *testing.T) {
	name := filepath.Join(t.TempDir(), "k.prom")
	l := live("web/a")
	l.dies = 3
	r := kprobe(t, &fake{lives: map[int]*fakeLive{1: l}}, "", "profile", "--metrics", name, "-t", "1m", "-p", "1")
	text, _ := os.ReadFile(name)
	if r.status != 0 || !regexp.MustCompile(`(?m)^kprobe_hits_total\{event="web/a",.*\} 1[12]0$`).Match(text) {
		t.Errorf("status %d\n%s\n%s", r.status, text, r.err)
	}
}
