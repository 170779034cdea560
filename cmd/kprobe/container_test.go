package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
	"kprobe/internal/procfs"
)

// container is a root folder with a static busybox, kprobe and a program that makes calls, and a
// shell of busybox's in it, in namespaces of its own.
type container struct {
	t           *testing.T
	root        string
	in          io.WriteCloser
	out         *bufio.Reader
	pid         int // of the program, seen from outside
	tool, calls string
}

// TestInContainer: probes are left in a program in a container, changed, read and taken out from
// outside and by a kprobe inside, as root and as root of a user namespace. What it did last is read
// after SIGKILL.
func TestInContainer(t *testing.T) {
	if os.Getuid() != 0 {
		fixture.Missing(t, "root, to change the root folder")
	}
	busybox := fixture.NeedTool(t, "busybox")
	unshare, setpriv := fixture.NeedTool(t, "unshare"), fixture.NeedTool(t, "setpriv")
	tool := filepath.Join(t.TempDir(), "kprobe")
	build := exec.Command(fixture.NeedTool(t, "go"), "build", "-o", tool, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	calls := fixture.Build(t, "recorder_calls.c", "-O1", "-static", "-lpthread")
	t.Setenv("KPROBE_EVENTS", filepath.Join(t.TempDir(), "events"))
	own := []string{unshare, "--mount", "--pid", "--net", "--uts", "--ipc", "--fork"}
	for name, prefix := range map[string][]string{
		"root":     own,
		"rootless": append([]string{setpriv, "--reuid", "65534", "--regid", "65534", "--clear-groups"}, append(own, "--user", "--map-root-user")...),
	} {
		t.Run(name, func(t *testing.T) {
			c := startContainer(t, busybox, tool, calls, prefix)
			c.outside()
			c.inside()
			c.kept()
		})
	}
}

func startContainer(t *testing.T, busybox, tool, calls string, prefix []string) *container {
	t.Helper()
	root, err := os.MkdirTemp("", "kprobe-container") // the folders of t.TempDir are root's alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	c := &container{t: t, root: root, tool: tool, calls: calls}
	for dir, mode := range map[string]os.FileMode{"": 0o755, "bin": 0o755, "dev": 0o755, "proc": 0o755, "w": 0o777} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(root, dir), mode); err != nil {
			t.Fatal(err)
		}
	}
	for to, from := range map[string]string{"bin/busybox": busybox, "kprobe": tool, "rcalls": calls} {
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(root, to), b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// A shell's background jobs read it.
	if err := os.WriteFile(filepath.Join(root, "dev/null"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	script := `mount -t proc proc "$1/proc" && exec chroot "$1" /bin/busybox sh`
	cmd := exec.Command(prefix[0], append(prefix[1:], "sh", "-c", script, "sh", root)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range procfs.Process(cmd.Process.Pid).AllChildren() {
			_ = unix.Kill(pid, unix.SIGKILL) // the first process of the namespace: all end with it
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	c.in, c.out = in, bufio.NewReader(out)
	c.sh(`export KPROBE_EVENTS=/w/events HOME=/w PATH=/bin`)
	c.sh(`busybox mkfifo /w/in; /rcalls 2 /w/counts paced </w/in >/w/out & P=$!; exec 3>/w/in; echo go >&3`)
	for end := time.Now().Add(time.Minute); c.pid == 0; time.Sleep(time.Millisecond) {
		for _, shell := range procfs.Process(cmd.Process.Pid).AllChildren() {
			for _, pid := range procfs.Process(shell).AllChildren() {
				if name, _ := procfs.Process(pid).Comm(); name == "rcalls" {
					c.pid = pid
				}
			}
		}
		if time.Now().After(end) {
			t.Fatal("the program isn't found from outside")
		}
	}
	// Its threads make calls.
	c.awaitCalls()
	return c
}

// counts is what the program counts for each of its threads, in 64 bytes: calls that it has begun, and
// those that have returned.
func (c *container) counts() []byte {
	c.t.Helper()
	b, err := os.ReadFile(filepath.Join(c.root, "w/counts"))
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

// awaitCalls waits until each of the program's two threads has made a hundred calls.
func (c *container) awaitCalls() {
	c.t.Helper()
	done := func(thread int) uint64 {
		if b, err := os.ReadFile(filepath.Join(c.root, "w/counts")); err == nil && len(b) >= 128 { // else it isn't made yet
			return binary.LittleEndian.Uint64(b[thread*64+8:])
		}
		return 0
	}
	for thread := range 2 {
		before := done(thread)
		for end := time.Now().Add(time.Minute); done(thread) < before+100; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				c.t.Fatalf("thread %d makes no calls", thread)
			}
		}
	}
}

// sh has the container's shell run a line, which must succeed, and gives what it prints.
func (c *container) sh(line string) string {
	c.t.Helper()
	const end = "the end of it:"
	if _, err := fmt.Fprintf(c.in, "{ %s\n} 2>&1; echo \"%s $?\"\n", line, end); err != nil {
		c.t.Fatal(err)
	}
	var text strings.Builder
	for {
		l, err := c.out.ReadString('\n')
		if err != nil {
			c.t.Fatalf("%s: %v: %s", line, err, text.String())
		}
		status, ok := strings.CutPrefix(l, end)
		if !ok {
			text.WriteString(l)
			continue
		}
		if strings.TrimSpace(status) != "0" {
			c.t.Fatalf("%s: status%s%s", line, status, text.String())
		}
		return text.String()
	}
}

// kprobe runs kprobe outside, which must succeed.
func (c *container) kprobe(args ...string) string {
	c.t.Helper()
	cmd := exec.Command(c.tool, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("kprobe %q: %v: %s", args, err, stderr.String())
	}
	return string(out)
}

const containerHit = "p:rec/hit hit n=$arg1:u64 check=$arg2:u64 thread=$arg3:u64"

// clean fails if something of kprobe is in the program, or traces it.
func (c *container) clean(after string) {
	c.t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", c.pid))
	if err != nil || bytes.Contains(maps, []byte("memfd:kprobe")) {
		c.t.Fatalf("%s: %v: %s", after, err, maps)
	}
	c.untraced(after)
}

func (c *container) untraced(after string) {
	c.t.Helper()
	st, err := procfs.Process(c.pid).Status()
	if err != nil || st.Int("TracerPid") != 0 {
		c.t.Fatalf("%s: %v: traced by %s", after, err, st.Field("TracerPid"))
	}
}

var containerHits = regexp.MustCompile(`hit: \(hit\+0x0.*\) n=(\d+) check=\d+ thread=(\d+)`)

// hits checks that a snapshot has hits, and gives the last n of each thread.
func (c *container) hits(snapshot string) map[int]uint64 {
	c.t.Helper()
	last := map[int]uint64{}
	for _, m := range containerHits.FindAllStringSubmatch(snapshot, -1) {
		n, _ := strconv.ParseUint(m[1], 10, 64)
		thread, _ := strconv.Atoi(m[2])
		last[thread] = n
	}
	if len(last) != 2 {
		c.t.Fatalf("hits of %d threads, not of 2: %.2000s", len(last), snapshot)
	}
	return last
}

// outside has a kprobe outside leave probes, change them, read them and take them out.
func (c *container) outside() {
	c.t.Helper()
	pid := strconv.Itoa(c.pid)
	c.kprobe("trace", "--detach", "-q", "-p", pid, containerHit)
	c.untraced("detached")
	c.awaitCalls()
	c.hits(c.kprobe("snapshot", "-p", pid))
	c.kprobe("add", "-p", pid, "p:rec/two hit2")
	c.kprobe("disable", "-p", pid, "rec/hit")
	before := c.hits(c.kprobe("snapshot", "-p", pid))
	c.kprobe("enable", "-p", pid, "rec/hit")
	c.awaitCalls()
	for thread, n := range c.hits(c.kprobe("snapshot", "-p", pid)) {
		if n <= before[thread] {
			c.t.Errorf("enabled again, thread %d records nothing: %d, then %d", thread, before[thread], n)
		}
	}
	c.kprobe("del", "-p", pid, "*")
	c.clean("taken out from outside")
}

// inside is outside by a kprobe in the container.
func (c *container) inside() {
	c.t.Helper()
	c.sh("/kprobe trace --detach -q -p $P '" + containerHit + "'")
	c.untraced("detached inside")
	c.awaitCalls()
	c.hits(c.sh("/kprobe snapshot -p $P 2>/w/err"))
	c.sh("/kprobe add -p $P 'p:rec/two hit2'; /kprobe disable -p $P rec/hit; /kprobe enable -p $P rec/hit")
	if list := c.sh("/kprobe list --sites -p $P"); !strings.Contains(list, "hit2") {
		c.t.Errorf("inside, the list is %s", list)
	}
	c.hits(c.kprobe("snapshot", "-p", strconv.Itoa(c.pid))) // from outside as well
	c.sh("/kprobe del -p $P '*'")
	c.clean("taken out inside")
}

// kept has the hits be kept in a file, kills the program, and reads them.
func (c *container) kept() {
	c.t.Helper()
	file := fmt.Sprintf("/dev/shm/kprobe-container-%d", c.pid)
	c.t.Cleanup(func() { _ = os.Remove(file) })
	c.kprobe("trace", "--detach", "-q", "--keep", file, "-p", strconv.Itoa(c.pid), containerHit)
	c.awaitCalls()
	c.untraced("detached with a file")
	if err := unix.Kill(c.pid, unix.SIGKILL); err != nil {
		c.t.Fatal(err)
	}
	c.sh("wait $P; true")
	last := c.hits(c.kprobe("snapshot", file))
	counts := c.counts()
	for thread := range 2 {
		begun := binary.LittleEndian.Uint64(counts[thread*64:])
		if n := last[thread]; n != begun && n+1 != begun {
			c.t.Errorf("thread %d had begun %d calls, and the last hit is of call %d", thread, begun, n)
		}
	}
}
