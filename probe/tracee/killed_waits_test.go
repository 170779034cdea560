//go:build linux && amd64

package tracee

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"kprobe/internal/fixture"
)

// holderMain is the tracer that TestHazardP53 kills: it stops a process, and says so.
func holderMain() {
	pid, _ := strconv.Atoi(os.Getenv("TRACEE_TEST_HOLDER"))
	tr, err := New()
	if err != nil {
		panic(err)
	}
	p, err := tr.Attach(context.Background(), pid)
	if err == nil {
		err = p.StopAll(context.Background())
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	fmt.Println("held")
	time.Sleep(patient)
	os.Exit(0)
}

// A tracer is killed while it holds a thread stopped in a system call that gives EINTR for
// being woken: the call goes on.
func TestHazardP53(t *testing.T) {
	exe := fixture.Build(t, "tracee_eintr.c", "-O1", "-lrt")
	for _, name := range []string{"epoll_wait", "recv_timeout", "sigtimedwait", "semop", "msgrcv", "io_getevents", "io_uring_enter", "inotify_read"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			free := spawn(t, exe, name)
			want, _ := free.rest()
			for tries := 0; ; tries++ {
				g := spawn(t, exe, name)
				time.Sleep(50 * time.Millisecond) // into the call, most likely
				c := exec.Command(os.Args[0])
				c.Env = append(os.Environ(), fmt.Sprintf("TRACEE_TEST_HOLDER=%d", g.pid))
				out, err := c.StdoutPipe()
				if err == nil {
					err = c.Start()
				}
				if err != nil {
					t.Fatal(err)
				}
				line, _ := bufio.NewReader(out).ReadString('\n')
				_ = c.Process.Kill() // it may have ended
				_ = c.Wait()
				got, status := g.rest()
				if line != "held\n" && tries < 20 {
					continue // a loaded machine: the wait was over
				}
				if line != "held\n" || got != want || status != 0 {
					t.Errorf("%q: %q, status %d; untraced %q", line, got, status, want)
				}
				return
			}
		})
	}
}
