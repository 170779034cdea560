package probe

import "kprobe/probe/recorder"

// ErrNoRecorder says that a process has no probes that were left alone.
var ErrNoRecorder = recorder.ErrNone

// ErrNoRings says that a file holds no rings. It is neither a memory file that was kept
// (--keep), nor a core dump of a process in which probes were left alone.
var ErrNoRings = recorder.ErrNoRings

// Recorder reads the rings of probes that were left alone in a process (Session.Detach). The
// process notices nothing. It is not safe for concurrent use.
type Recorder = recorder.Recorder

// ErrTakenOut says that detached probes were taken out while their hits were read.
var ErrTakenOut = recorder.ErrTakenOut

// Held describes what a recorder holds.
type Held = recorder.Held

// OpenRecorder opens the rings of probes that were left alone in a process. Close the result.
// Errors are ErrNoRecorder, symbols.ErrGone, symbols.ErrPermission, and those of a damaged
// memory file.
func OpenRecorder(pid int) (*Recorder, error) { return recorder.Open(pid) }

// OpenBlackBox opens the rings in a memory file that was kept (Options.Keep), or in a core
// dump. Its process may be gone, or may have run on another machine. Close the result.
//
// missing lists files that the process had mapped and that don't exist here, or have changed.
// Addresses in them have names only as far as the description beside the rings gives them.
//
// Errors are ErrNoRings, and those of a damaged file.
func OpenBlackBox(name string) (r *Recorder, missing []string, err error) {
	return recorder.OpenFile(name)
}
