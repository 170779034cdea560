//go:build linux && amd64

package tracee

// onStep is what OnStep has set.
var onStep func()

// OnStep is for tests that end a tracer between any two of its steps. f is called before each request
// by which a Tracer changes a thread's state, and before each write to a process's memory. OnStep must
// be called before there is a Tracer.
func OnStep(f func()) { onStep = f }

func step() {
	if onStep != nil {
		onStep()
	}
}
