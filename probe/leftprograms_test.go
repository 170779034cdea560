package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/area"
)

// goWrites makes the writes of pythonWrites.
const goWrites = `
package main

import (
	"bufio"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

//go:noinline
func send(f *os.File, b []byte) int {
	n, _ := f.Write(b)
	return n
}

func main() {
	null, _ := os.OpenFile("/dev/null", os.O_WRONLY, 0)
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var wg sync.WaitGroup
		var sum atomic.Int64
		for range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for range 100 {
					sum.Add(int64(send(null, []byte("thirteen byte"))))
				}
			}()
		}
		wg.Wait()
		syscall.Write(1, []byte(fmt.Sprintln("done", sum.Load())))
	}
}`

// TestLeftSecondPrograms has two and three commands leave probes in interpreters and in a Go program, which make 800
// writes of thirteen bytes each round. Each is a hit of all that are there, they go in any order, and the program is left as it
// was found.
func TestLeftSecondPrograms(t *testing.T) {
	dir := t.TempDir()
	java, goes := filepath.Join(dir, "Writes.java"), filepath.Join(dir, "writes.go")
	for name, text := range map[string]string{java: javaWrites, goes: goWrites} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	thirteen := " if n == 13"
	for _, c := range []struct {
		name string
		run  func(t *testing.T) *busy
		defs [3]string
	}{
		{"python3", func(t *testing.T) *busy { return startBusy(t, fixture.NeedTool(t, "python3"), "-c", pythonWrites) },
			[3]string{"p:one libc:write n=$arg3" + thirteen, "p:two _Py_write n=$arg3" + thirteen, "r:three libc:pthread_create v=$retval"}},
		{"node", func(t *testing.T) *busy { return startBusy(t, fixture.NeedTool(t, "node"), "-e", nodeWrites) },
			[3]string{"p:one libc:write n=$arg3" + thirteen, "p:two uv_fs_write", "p:three uv_fs_req_cleanup"}},
		{"java", func(t *testing.T) *busy { return startBusy(t, fixture.NeedTool(t, "java"), "-XX:+UseSerialGC", java) },
			[3]string{"p:one libc:write n=$arg3" + thirteen, "p:two libjava:Java_java_io_FileOutputStream_writeBytes n=$arg5:s32" + thirteen, "r:three libc:pthread_create v=$retval"}},
		{"go", func(t *testing.T) *busy { return startBusy(t, fixture.BuildFile(t, goes)) },
			[3]string{"p:one main.send", "p:two os.(*File).Write", "p:three syscall.Write"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := c.run(t)
			want := b.work()
			if want != fmt.Sprint("done ", 800*len("thirteen byte")) {
				t.Fatalf("it printed %q", want)
			}
			pid := b.cmd.Process.Pid
			before, text := holdings(t, pid), sameText(t, pid)
			seen := map[string]uint64{}
			for _, order := range []string{"+1 +2 +3 -1 -2 -3", "+3 +2 -3 +1 -1 +1 -2 -1", "+2 +1 -1 +3 -2 -3"} {
				clear(seen)
				for step := range strings.FieldsSeq(order) {
					i := step[1] - '1'
					name := []string{"one", "two", "three"}[i]
					if step[0] == '+' {
						leaveIn(t, pid, Options{Detach: true}, c.defs[i])
						seen[name] = 0
					} else if err := openedLive(t, pid).Remove(t.Context(), []string{"kprobes/" + name}); err != nil {
						t.Fatalf("%q, %s: %v", order, step, err)
					} else {
						delete(seen, name)
					}
					if got := b.work(); got != want {
						t.Fatalf("%q, %s: it printed %q, otherwise %q", order, step, got, want)
					}
					if len(seen) == 0 {
						continue
					}
					stats := openedLive(t, pid).Stats()
					for k := range stats {
						name, passed := stats[k].Event.Name, stats[k].Hits-stats[k].Filtered
						_, is := seen[name]
						seen[name]++
						if name == "three" {
							continue // its hits depend on the program's version
						}
						if !is || passed != 800*seen[name] || stats[k].Lost > 0 {
							t.Errorf("%q, %s: %s had %d hits, %d were lost, after %d rounds", order, step, name, passed, stats[k].Lost, seen[name])
						}
					}
				}
				if files, err := area.FindMemfiles(pid); err != nil || len(files) > 0 {
					t.Errorf("%q: memory files are mapped: %v, %v", order, files, err)
				}
			}
			if after := sameText(t, pid); after != text {
				t.Errorf("its text is not what it was:\n%s\nbefore:\n%s", after, text)
			}
			if after := holdings(t, pid); after != before {
				t.Errorf("it holds\n%s\nbefore\n%s", after, before)
			}
		})
	}
}
