package bench

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// remoteFDs names the descriptors that newRemote gives a perf(1): its events are
// opened, and their breakpoints put in, long before it enables them, and what is
// hit in between isn't recorded.
const remoteFDs = "fd:3,4"

// remote is how a perf is told when to begin (perf-record(1), --control).
type remote struct {
	to, from *os.File
	childs   []*os.File
}

// newRemote gives a command the descriptors, before it is started. Close it.
func newRemote(cmd *exec.Cmd) (*remote, error) {
	in, to, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe to %s: %w", cmd.Path, err)
	}
	from, out, err := os.Pipe()
	if err != nil {
		_, _ = in.Close(), to.Close()
		return nil, fmt.Errorf("pipe from %s: %w", cmd.Path, err)
	}
	cmd.ExtraFiles = []*os.File{in, out}
	return &remote{to, from, cmd.ExtraFiles}, nil
}

// enable has it begin, and returns when it has.
func (r *remote) enable() error {
	r.closeChilds() // an end of the other is seen
	if _, err := r.to.WriteString("enable\n"); err != nil {
		return fmt.Errorf("tell it to begin: %w", err)
	}
	_ = r.from.SetReadDeadline(time.Now().Add(patience)) // pipes have deadlines
	b := make([]byte, 16)
	n, err := r.from.Read(b)
	if err != nil {
		return fmt.Errorf("it was told to begin: %w", err)
	}
	if said := strings.Trim(string(b[:n]), "\n\x00"); said != "ack" {
		return fmt.Errorf("it was told to begin, and said %q", said)
	}
	return nil
}

func (r *remote) closeChilds() {
	for _, f := range r.childs {
		_ = f.Close()
	}
	r.childs = nil
}

// close lets go of the descriptors, if there are any. A perf whose descriptors are
// closed while it records ends without its file.
func (r *remote) close() {
	if r == nil {
		return
	}
	r.closeChilds()
	_, _ = r.to.Close(), r.from.Close()
}
