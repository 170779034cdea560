package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"kprobe/internal/procfs"

	"golang.org/x/sys/unix"
)

// process is a running subject. It is used by one goroutine.
type process struct {
	*subject
	path    string // of its file
	cmd     *exec.Cmd
	pid     int // of the subject, which cmd may have started in its turn
	threads []pipes
	cpus    []int // to pin threads to, in turn
	// made counts the calls of each function that were asked for.
	made map[uint64]uint64
}

// pipes are how a thread is told what to do.
type pipes struct{ to, from *os.File }

// start writes the subject, with so many functions besides, to a file in dir and
// runs it with so many threads.
func start(dir string, threads, many int) (*process, error) {
	p, err := written(dir, many, false)
	if err != nil {
		return nil, err
	}
	if err := p.run(exec.Command(p.path), threads); err != nil {
		return nil, err
	}
	if err := p.pin(); err != nil {
		p.end()
		return nil, err
	}
	return p, nil
}

// written writes the subject to a file in dir.
func written(dir string, many int, linked bool) (*process, error) {
	cpus, err := allowed()
	if err != nil {
		return nil, err
	}
	s, err := newSubject(slices.Max(cpus)+1, many, linked)
	if err != nil {
		return nil, fmt.Errorf("write the program to measure: %w", err)
	}
	p := &process{subject: s, path: filepath.Join(dir, "kprobe-bench"), cpus: cpus, made: map[uint64]uint64{}}
	if err := os.WriteFile(p.path, s.image(), 0o700); err != nil {
		return nil, fmt.Errorf("write the program to measure: %w", err)
	}
	return p, nil
}

// run runs the subject by a command, with so many threads, and returns when it
// is there. It ends when its pipes do, so it does not outlive this process.
func (p *process) run(cmd *exec.Cmd, threads int) (err error) {
	p.cmd = cmd
	defer func() {
		p.closeChilds()
		if err != nil {
			p.end()
		}
	}()
	for range threads {
		if err := p.pipe(); err != nil {
			return err
		}
	}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start the program to measure: %w", err)
	}
	p.closeChilds() // its end is seen
	p.pid = p.cmd.Process.Pid
	for i := 1; i < threads; i++ {
		if err := p.request(0, 0, uint64(i)); err != nil {
			return err
		}
		if err := p.waitThreads(i + 1); err != nil {
			return err
		}
	}
	_, err = p.call(1, p.function("bare_work"), 1)
	return err
}

// pipe makes the pipes of one more thread, before the program starts.
func (p *process) pipe() error {
	in, to, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("pipe to the program to measure: %w", err)
	}
	p.cmd.ExtraFiles = append(p.cmd.ExtraFiles, in)
	from, out, err := os.Pipe()
	if err != nil {
		_ = to.Close()
		return fmt.Errorf("pipe from the program to measure: %w", err)
	}
	p.cmd.ExtraFiles = append(p.cmd.ExtraFiles, out)
	p.threads = append(p.threads, pipes{to, from})
	return nil
}

// closeChilds closes the child's ends of the pipes.
func (p *process) closeChilds() {
	for _, f := range p.cmd.ExtraFiles {
		_ = f.Close()
	}
}

// allowed lists the CPUs that this process may use.
func allowed() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("find out which CPUs may be used: %w", err)
	}
	var out []int
	for i := 0; len(out) < set.Count(); i++ {
		if set.IsSet(i) {
			out = append(out, i)
		}
	}
	return out, nil
}

func (p *process) tids() ([]int, error) {
	out, err := procfs.Process(p.pid).Threads()
	if err != nil {
		return nil, fmt.Errorf("list the threads of the program to measure: %w", err)
	}
	slices.Sort(out)
	return out, nil
}

func (p *process) waitThreads(n int) error {
	for range 1000 {
		tids, err := p.tids()
		if err != nil || len(tids) == n {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("thread %d of the program to measure did not start", n)
}

// pin gives each thread a CPU of its own as far as there are any.
func (p *process) pin() error {
	tids, err := p.tids()
	if err != nil {
		return err
	}
	for i, tid := range tids {
		var set unix.CPUSet
		set.Set(p.cpus[i%len(p.cpus)])
		if err := unix.SchedSetaffinity(tid, &set); err != nil {
			return fmt.Errorf("pin thread %d: %w", tid, err)
		}
	}
	return nil
}

func (p *process) request(thread int, a, b uint64) error {
	var req [requestSize]byte
	binary.LittleEndian.PutUint64(req[:], a)
	binary.LittleEndian.PutUint64(req[8:], b)
	if _, err := p.threads[thread].to.Write(req[:]); err != nil {
		return fmt.Errorf("tell the program what to do: %w", err)
	}
	return nil
}

// call has the first so many threads call a function n times each, at once,
// and returns how long a call took, in ns, the mean of the threads.
func (p *process) call(threads int, fn uint64, n int) (ns float64, err error) {
	for i := range threads {
		if err := p.request(i, fn, uint64(n)); err != nil {
			return 0, err
		}
		p.made[fn] += uint64(n)
	}
	for i := range threads {
		var b [answerSize]byte
		_ = p.threads[i].from.SetReadDeadline(time.Now().Add(answerWithin)) // pipes have deadlines
		_, err := io.ReadFull(p.threads[i].from, b[:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, fmt.Errorf("the program to measure did not answer within %v", answerWithin)
		}
		if err != nil {
			return 0, fmt.Errorf("the program to measure ended: %w", err)
		}
		var t [4]int64
		for k := range t {
			t[k] = int64(binary.LittleEndian.Uint64(b[8*k:]))
		}
		ns += float64((t[2]-t[0])*1e9+t[3]-t[1]) / float64(n)
	}
	return ns / float64(threads), nil
}

// answerWithin is how long calls may take: a thread that a tracer has stopped
// and forgotten never answers.
const answerWithin = 20 * time.Second

// end ends the program.
func (p *process) end() {
	for _, t := range p.threads {
		_ = t.to.Close()
		_ = t.from.Close()
	}
	if p.cmd.Process != nil {
		_ = p.cmd.Process.Kill() // it may have ended already
		_ = p.cmd.Wait()
	}
}
