package metrics

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kprobe/internal/fixture"
	"kprobe/probe/results"
)

// serve has a server answer for a source until the test ends.
func serve(t *testing.T, s Source) *Server {
	t.Helper()
	srv, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	if err := srv.Serve(New(s)); err != nil {
		t.Fatal(err)
	}
	return srv
}

func none() []results.Stats { return nil }

// TestOnlyMetrics: nothing but GET /metrics is answered.
func TestOnlyMetrics(t *testing.T) {
	srv := serve(t, Source{Places: none})
	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/metrics", 200}, {"HEAD", "/metrics", 200}, {"POST", "/metrics", 405}, {"GET", "/", 404},
		{"GET", "/metrics/x", 404}, {"GET", "/debug/pprof/", 404}, {"DELETE", "/metrics", 405},
	} {
		req, _ := http.NewRequest(tt.method, "http://"+srv.Addr()+tt.path, strings.NewReader("x"))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tt.status {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.path, resp.StatusCode, tt.status)
		}
	}
}

// TestHangingReaders: readers that connect and say nothing, or ask and don't read, keep
// nobody out for long, and nobody from closing.
func TestHangingReaders(t *testing.T) {
	srv := serve(t, Source{Places: none})
	for range 2 * maxReaders {
		c, err := net.Dial("tcp", srv.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	asked := time.Now()
	client := http.Client{Timeout: time.Minute}
	resp, err := client.Get("http://" + srv.Addr() + "/metrics")
	if err != nil {
		t.Fatalf("after %v: %v", time.Since(asked), err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	ask, err := net.Dial("tcp", srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer ask.Close()
	fmt.Fprint(ask, "GET /metrics HTTP/1.1\r\nHost: x\r\n") // and no more
	srv.Close()                                             // returns
}

func TestAddressInUse(t *testing.T) {
	srv := serve(t, Source{Places: none})
	if _, err := Listen(srv.Addr()); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("%v", err)
	}
}

// TestPrometheus has a real Prometheus scrape the numbers, and asks it for them: counters,
// and a quantile of the native histogram.
func TestPrometheus(t *testing.T) {
	tool := fixture.NeedTool(t, "prometheus")
	s := calls("work", 1000, 1000, 1000, 4000)
	s.Places = func() []results.Stats { return []results.Stats{place(event("m"), "malloc", "libc.so.6", 10)} }
	srv := serve(t, s)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().String()
	free.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("scrape_configs:\n- job_name: kprobe\n  scrape_interval: 200ms\n  scrape_timeout: 200ms\n  static_configs:\n  - targets: ['%s']\n", srv.Addr())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := exec.Command(tool, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+at,
		"--enable-feature=native-histograms", "--log.level=warn")
	var log strings.Builder
	p.Stdout, p.Stderr = &log, &log
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	}()
	for query, want := range map[string]string{
		`kprobe_hits_total{event="kprobes/m",function="malloc",module="libc.so.6"}`: "10",
		`kprobe_missed_total`: "2",
		`round(histogram_quantile(0.5, kprobe_call_duration_seconds{function="work"}) * 1e9, 50)`: "1000",
		`histogram_count(kprobe_call_duration_seconds)`:                                           "4",
	} {
		got := ""
		for end := time.Now().Add(time.Minute); got != want && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			got = ask(at, query)
		}
		if got != want {
			_ = p.Process.Kill()
			_ = p.Wait()
			t.Fatalf("%s is %q, want %q\n%s", query, got, want, log.String())
		}
	}
}

// ask gives the one number that answers a query, "" where there is none yet.
func ask(at, query string) string {
	resp, err := http.Get("http://" + at + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var answer struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	if json.NewDecoder(resp.Body).Decode(&answer) != nil || len(answer.Data.Result) != 1 {
		return ""
	}
	return fmt.Sprint(answer.Data.Result[0].Value[1])
}
