package memory

import (
	"os"

	"kprobe/symbols"
)

// Window is a memory file as another process has it mapped: offsets are those in
// the file.
type Window struct {
	Mem *os.File // the memory of that process
	At  symbols.Addr
}

// ReadAt implements io.ReaderAt.
func (w Window) ReadAt(b []byte, off int64) (int, error) { return w.Mem.ReadAt(b, int64(w.At)+off) }

// WriteAt implements io.WriterAt.
func (w Window) WriteAt(b []byte, off int64) (int, error) { return w.Mem.WriteAt(b, int64(w.At)+off) }
