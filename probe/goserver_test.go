package probe

import (
	"fmt"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

// TestGoServer traces the handler of a Go HTTP server under load, while the
// collector runs: each request is seen once, by its method and path, when it
// comes and when it is answered.
func TestGoServer(t *testing.T) {
	prog := fixture.Build(t, "go_server.go")
	want := plain(t, prog)
	sub := startSubject(t, prog)
	const place = "main.(*server).ServeHTTP"
	l := attach(t, sub.pid(), Options{},
		"p:in "+place+" m=r.Method path=r.URL.Path",
		"r:out "+place+" m=r.Method path=r.URL.Path",
		"p:deep main.grow path depth stack=100 if depth == 0")
	stacks := &stackSink{}
	l.sink.also = stacks
	if got := sub.work(); got != want {
		t.Errorf("probed, the server says %q, otherwise %q", got, want)
	}
	l.finish(sub.pid())
	sub.end()
	const clients, requests = 8, 100
	seen := map[string]int{}
	deep := 0
	for _, line := range l.sink.all() {
		if strings.HasPrefix(line, "deep ") {
			deep++
			continue
		}
		line, _, _ = strings.Cut(line, " (") // where it returned to
		seen[line]++
	}
	for id := range clients {
		for i := range requests {
			method := []string{"GET", "POST", "DELETE"}[i%3]
			for _, ev := range []string{"in", "out"} {
				if s := fmt.Sprintf(`%s m="%s" path="/client/%d/item/%d"`, ev, method, id, i); seen[s] != 1 {
					t.Errorf("%s was seen %d times", s, seen[s])
				}
			}
		}
	}
	if len(seen) != 2*clients*requests || deep != clients*requests {
		t.Errorf("%d different hits and %d deep ones", len(seen), deep)
		n := 0
		for s := range seen {
			if n++; n < 10 {
				t.Log(s)
			}
		}
	}
	// Every stack leads from the innermost call to the goroutine's start.
	for i, names := range stacks.names {
		if names == nil {
			continue
		}
		s := strings.Join(names, " ")
		if !strings.HasPrefix(s, "main.grow main.grow main.grow") || !strings.Contains(s, " main.(*server).ServeHTTP net/http.") ||
			!strings.HasPrefix(names[len(names)-1], "runtime.goexit") || stacks.ends[i].String() != "" && len(names) < 4 {
			if stacks.ends[i].String() != "truncated" {
				t.Errorf("stack %d: %s %v", i, s, stacks.ends[i])
			}
		}
	}
}

// TestGoGlobLeavesOut: bytes that look like a function whose exit can't be moved, as
// crypto has some to mark a program by, are left out of a pattern.
func TestGoGlobLeavesOut(t *testing.T) {
	prog := fixture.Build(t, "go_server.go")
	sub := startSubject(t, prog)
	l := attach(t, sub.pid(), Options{CountOnly: true}, "r:out crypto/internal/*")
	if st := l.stat("out"); st.Places < 10 {
		t.Errorf("only %d places are probed", st.Places)
	}
	sub.work()
	l.finish(sub.pid())
	sub.end()
}
