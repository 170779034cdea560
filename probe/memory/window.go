package memory

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"kprobe/internal/procfs"
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

// Whole is the memory of a process, by its addresses.
type Whole struct{ Mem io.ReaderAt }

// ReadMemory implements symbols.Memory.
func (w Whole) ReadMemory(b []byte, at symbols.Addr) (int, error) {
	return w.Mem.ReadAt(b, int64(at))
}

// OpenProcess opens the memory of a process. Errors are symbols.ErrGone and
// symbols.ErrPermission.
func OpenProcess(pid int) (*os.File, error) {
	mem, err := os.OpenFile(procfs.Image(pid).Path("mem"), os.O_RDWR, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, symbols.ErrGone
	case errors.Is(err, fs.ErrPermission):
		return nil, symbols.ErrPermission
	case err != nil:
		return nil, fmt.Errorf("open the memory of process %d: %w", pid, err)
	}
	return mem, nil
}
