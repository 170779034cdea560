package probe

import "kprobe/probe/recorder"

// ErrNoRecorder says that nobody has left probes alone in a process.
var ErrNoRecorder = recorder.ErrNone

// ErrNoRings says that a file holds no rings: it is no memory file that was kept
// (--keep), nor a core dump of a process with probes that were left alone.
var ErrNoRings = recorder.ErrNoRings

// Recorder is what reads the rings of probes that were left alone in a process
// (Session.Detach). The process notices nothing of it. It is not safe for concurrent
// use.
type Recorder = recorder.Recorder

// Held tells of what a recorder holds.
type Held = recorder.Held

// OpenRecorder opens the rings of the probes that were left alone in a process. Close
// it. Errors are ErrNoRecorder, symbols.ErrGone, symbols.ErrPermission, and those of
// a file that is damaged.
func OpenRecorder(pid int) (*Recorder, error) { return recorder.Open(pid) }

// OpenBlackBox opens the rings in a memory file that was kept (Options.Keep), or in a core
// dump, whose process may be gone, or was another machine's. missing are the files that it
// had mapped and that are not here, or are others by now: their addresses are named as far
// as the rings' description does. Close it.
//
// Errors are ErrNoRings, and those of a file that is damaged.
func OpenBlackBox(name string) (r *Recorder, missing []string, err error) {
	return recorder.OpenFile(name)
}
