package symbols

import (
	"runtime/debug"
	"sync"
)

// aheadFrom is the size in bytes of a compressed .debug_info from which on it is unpacked ahead.
const aheadFrom = 1 << 20

// ahead reads a file's debug information before somebody waits for it. A nil *ahead does nothing.
type ahead struct {
	start, wait, end sync.Once
	wanted           chan struct{} // closed when somebody waits; nil if nothing is read ahead
	none             chan struct{} // closed when the last section is taken
	then             func()        // called on a goroutine of its own when the last section is taken
}

// expectDebug is called if a question will soon need the file's debug information. If that is large and compressed, it
// is unpacked while the symbols are read, which one CPU does. What steps up stacks is read while the largest
// section is still unpacked.
func (f *File) expectDebug() {
	f.ahead.start.Do(func() {
		in := f.debugImage()
		if in.err != nil {
			return
		}
		if s := in.im.debugHeader("info"); s == nil || !s.packed() || s.size < aheadFrom {
			return
		}
		f.ahead.wanted, f.ahead.none = make(chan struct{}), make(chan struct{})
		f.ahead.then = func() {
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			f.Unwind()
		}
		go func() {
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			f.readDebugData(&f.ahead)
		}()
	})
}

// waits is called when somebody waits for the debug information.
func (a *ahead) waits() {
	a.start.Do(func() {}) // it is too late to read ahead
	if a.wanted != nil {
		a.wait.Do(func() { close(a.wanted) })
	}
}

// leaveCPU returns when somebody waits for the debug information, or no section is left.
func (a *ahead) leaveCPU() {
	if a == nil {
		return
	}
	select {
	case <-a.wanted:
	case <-a.none:
	}
}

// taken is called when no section is left.
func (a *ahead) taken() {
	if a == nil {
		return
	}
	a.end.Do(func() {
		close(a.none)
		go a.then()
	})
}
