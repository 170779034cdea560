package debuginfod

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const someID = "aabbccddeeff00112233"

// right takes the file that the tests' servers are to send.
func right(path string) error {
	b, err := os.ReadFile(path)
	if err == nil && !bytes.Equal(b, wholeFile()) {
		err = errors.New("it is of another build")
	}
	return err
}

func wholeFile() []byte { return append([]byte("\x7fELF"), bytes.Repeat([]byte("debug"), 100_000)...) }

// config is one for tests: its own folder, and little patience.
func config(t *testing.T, servers ...string) Config {
	t.Helper()
	return Config{Servers: servers, Dir: filepath.Join(t.TempDir(), "cache"), Timeout: 20 * time.Second, MaxTime: time.Minute, MaxSize: 1 << 20}
}

// leftovers are the files in the cache folder.
func leftovers(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			info, err := d.Info()
			if err != nil {
				return err
			}
			out = append(out, fmt.Sprintf("%s %d", d.Name(), info.Size()))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestFetchOnce(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path != "/base/buildid/"+someID+"/debuginfo" || r.Method != http.MethodGet {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		_, _ = w.Write(wholeFile())
	}))
	defer s.Close()
	conf := config(t, s.URL+"/base")
	for range 2 {
		path, err := New(conf, nil).Fetch(t.Context(), someID, right)
		if err != nil || path != filepath.Join(conf.Dir, someID, "debuginfo") {
			t.Fatal(path, err)
		}
		if have, ok := conf.Cached(someID); !ok || have != path || right(have) != nil {
			t.Errorf("the cache has %q, %v", have, ok)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the server was asked %d times", n)
	}
	if got := leftovers(t, conf.Dir); len(got) != 1 {
		t.Errorf("the cache has %q", got)
	}
	// What the cache has may be damaged: then it is as if it weren't there.
	if err := os.WriteFile(conf.path(someID), []byte("\x7fELF no"), 0o600); err != nil {
		t.Fatal(err)
	}
	if path, err := New(conf, nil).Fetch(t.Context(), someID, right); err != nil || right(path) != nil || asked.Load() != 2 {
		t.Errorf("a damaged file in the cache: %v, asked %d times", err, asked.Load())
	}
}

func TestNobodyHasIt(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		http.NotFound(w, r)
	}))
	defer s.Close()
	conf := config(t, s.URL, s.URL+"/second")
	for range 2 {
		if _, err := New(conf, nil).Fetch(t.Context(), someID, right); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("two servers were asked %d times, want once each", n)
	}
	old := time.Now().Add(-missTime - time.Minute)
	if err := os.Chtimes(conf.path(someID), old, old); err != nil {
		t.Fatal(err)
	}
	if _, err := New(conf, nil).Fetch(t.Context(), someID, right); !errors.Is(err, ErrNotFound) || asked.Load() != 4 {
		t.Errorf("%v; asked %d times, want again when the note is old", err, asked.Load())
	}
	if _, ok := conf.Cached(someID); ok {
		t.Error("the note counts as a file")
	}
}

// TestTheNextServer asks on where one fails.
func TestTheNextServer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/broken"):
			w.WriteHeader(http.StatusBadGateway)
		case strings.HasPrefix(r.URL.Path, "/other"):
			_, _ = w.Write([]byte("\x7fELF of another build"))
		default:
			_, _ = w.Write(wholeFile())
		}
	}))
	defer s.Close()
	conf := config(t, s.URL+"/broken", s.URL+"/other", s.URL)
	var said []string
	path, err := New(conf, func(f string, a ...any) { said = append(said, fmt.Sprintf(f, a...)) }).Fetch(t.Context(), someID, right)
	if err != nil || right(path) != nil {
		t.Fatal(err)
	}
	all := strings.Join(said, "\n")
	for _, want := range []string{"502", "another build"} {
		if !strings.Contains(all, want) {
			t.Errorf("what is told lacks %q:\n%s", want, all)
		}
	}
}

// TestHostileServers: whatever a server does, the answer is an error, soon, and
// nothing stays.
func TestHostileServers(t *testing.T) {
	endless := func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("\x7fELF"))
		for b := make([]byte, 1<<16); r.Context().Err() == nil; {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	}
	tests := map[string]struct {
		serve http.HandlerFunc
		want  string
		slow  bool
	}{
		"endless":   {serve: endless, want: "more than 1048576 bytes"},
		"no ELF":    {serve: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, want: "not an ELF file"},
		"nothing":   {serve: func(http.ResponseWriter, *http.Request) {}, want: "not an ELF file"},
		"too large": {serve: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "99999999999") }, want: "DEBUGINFOD_MAXSIZE"},
		"another build": {serve: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("\x7fELF of another build"))
		}, want: "another build"},
		"cut short": {serve: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(wholeFile())))
			_, _ = w.Write(wholeFile()[:5000])
		}, want: "unexpected EOF"},
		"redirects for ever": {serve: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path+"x", http.StatusFound)
		}, want: "redirects too often"},
		"redirects to a file": {serve: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
		}, want: "unsafe place"},
		"drips": {serve: func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte("\x7fELF"))
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte{0})
				_ = http.NewResponseController(w).Flush()
				time.Sleep(time.Millisecond)
			}
		}, want: "less than 100 KB", slow: true},
		"sends no body": {serve: func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, want: "less than 100 KB", slow: true},
		"is silent": {serve: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, want: "timeout", slow: true},
		"hangs up": {serve: func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = c.Close()
			}
		}, want: "EOF"},
		"long headers": {serve: func(w http.ResponseWriter, _ *http.Request) {
			for i := range 2000 {
				w.Header().Set(fmt.Sprintf("X-Debuginfod-%d", i), strings.Repeat("x", 1000))
			}
		}, want: "header"},
		"an odd status": {serve: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, want: "204"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(tt.serve)
			defer s.Close()
			conf := config(t, s.URL)
			if tt.slow {
				conf.Timeout = 200 * time.Millisecond
			}
			_, err := New(conf, nil).Fetch(t.Context(), someID, right)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if got := leftovers(t, conf.Dir); len(got) != 0 {
				t.Errorf("the cache has %q", got)
			}
		})
	}
}

// TestDowngrade: who asks in secret is not sent to where all can listen.
func TestDowngrade(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(wholeFile()) }))
	defer plain.Close()
	secret := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	defer secret.Close()
	c := New(config(t, secret.URL), nil)
	c.http.Transport = secret.Client().Transport
	if _, err := c.Fetch(t.Context(), someID, right); err == nil || !strings.Contains(err.Error(), "unsafe place") {
		t.Error(err)
	}
	// A redirect to another place of the same kind is followed.
	moved := httptest.NewServer(http.RedirectHandler(plain.URL, http.StatusFound))
	defer moved.Close()
	if _, err := New(config(t, moved.URL), nil).Fetch(t.Context(), someID, right); err != nil {
		t.Error(err)
	}
}

// TestDeadServer is asked once, however many files are wanted.
func TestDeadServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := "http://" + l.Addr().String()
	l.Close()
	asked := 0
	c := New(config(t, gone), func(f string, a ...any) {
		if strings.Contains(fmt.Sprintf(f, a...), "asking") {
			asked++
		}
	})
	for i := range 3 {
		if _, err := c.Fetch(t.Context(), fmt.Sprintf("%s%02d", someID, i), right); err == nil || errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	if got := c.Config().missing(someID + "00"); got {
		t.Error("a server that is down counts as one that has no such file")
	}
}

func TestInterrupt(t *testing.T) {
	started := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
	}))
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	if _, err := New(config(t, s.URL), nil).Fetch(ctx, someID, right); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestUnusableFolder: a cache that can't be written is an error that says so.
func TestUnusableFolder(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(wholeFile()) }))
	defer s.Close()
	conf := config(t, s.URL)
	if err := os.WriteFile(conf.Dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(conf, nil).Fetch(t.Context(), someID, right); err == nil || !strings.Contains(err.Error(), "cache") {
		t.Error(err)
	}
	conf.Dir = ""
	if _, err := New(conf, nil).Fetch(t.Context(), someID, right); err == nil || !strings.Contains(err.Error(), "XDG_CACHE_HOME") {
		t.Error(err)
	}
	for _, id := range []string{"", "../../etc", "AABB", "abc", "zz" + someID, strings.Repeat("ab", 100)} {
		if _, err := New(conf, nil).Fetch(t.Context(), id, right); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestFromEnv(t *testing.T) {
	env := map[string]string{
		"DEBUGINFOD_URLS": " https://a.example/ ftp://b  http://c:8002/x ", "HOME": "/home/u", "DEBUGINFOD_TIMEOUT": "7",
		"DEBUGINFOD_MAXTIME": "x", "DEBUGINFOD_MAXSIZE": "1000",
	}
	c := FromEnv(func(s string) string { return env[s] })
	if len(c.Servers) != 2 || c.Servers[0] != "https://a.example" || c.Servers[1] != "http://c:8002/x" {
		t.Errorf("servers %q", c.Servers)
	}
	if c.Timeout != 7*time.Second || c.MaxTime != defaultMaxTime || c.MaxSize != 1000 || c.Dir != "/home/u/.cache/debuginfod_client" {
		t.Errorf("%+v", c)
	}
	env["XDG_CACHE_HOME"] = "/x"
	if c = FromEnv(func(s string) string { return env[s] }); c.Dir != "/x/debuginfod_client" {
		t.Error(c.Dir)
	}
	env["DEBUGINFOD_CACHE_PATH"] = "/y"
	if c = FromEnv(func(s string) string { return env[s] }); c.Dir != "/y" {
		t.Error(c.Dir)
	}
	if c = FromEnv(func(string) string { return "" }); c.Servers != nil || c.Dir != "" || c.Timeout == 0 {
		t.Errorf("of nothing: %+v", c)
	}
}
