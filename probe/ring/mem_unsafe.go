package ring

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// ErrMemory is wrapped by errors about memory that can't hold the file.
var ErrMemory = errors.New("memory does not fit the ring file")

// mem is the mapped file. Offsets come from a Layout that newMem has checked
// against the memory's size, so that an index out of range is a defect here
// and not something that a target can cause.
//
// The file's size must be sealed (F_SEAL_SHRINK): a target that truncated it
// would otherwise send the reader SIGBUS.
type mem struct{ b []byte }

func newMem(b []byte, l *Layout) (mem, error) {
	if int64(len(b)) < l.Code.Off {
		return mem{}, fmt.Errorf("%w: %d bytes of %d", ErrMemory, len(b), l.Code.Off)
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(b)))%8 != 0 {
		return mem{}, fmt.Errorf("%w: not 8-byte aligned", ErrMemory)
	}
	return mem{b}, nil
}

func (m mem) p32(off int64) *uint32 { return (*uint32)(unsafe.Pointer(&m.b[off : off+4][0])) }
func (m mem) p64(off int64) *uint64 { return (*uint64)(unsafe.Pointer(&m.b[off : off+8][0])) }

func (m mem) load32(off int64) uint32     { return atomic.LoadUint32(m.p32(off)) }
func (m mem) load64(off int64) uint64     { return atomic.LoadUint64(m.p64(off)) }
func (m mem) store32(off int64, v uint32) { atomic.StoreUint32(m.p32(off), v) }
func (m mem) store64(off int64, v uint64) { atomic.StoreUint64(m.p64(off), v) }
func (m mem) add64(off int64, v uint64)   { atomic.AddUint64(m.p64(off), v) }

// or32 and and32 give what there was.
func (m mem) or32(off int64, v uint32) uint32  { return atomic.OrUint32(m.p32(off), v) }
func (m mem) and32(off int64, v uint32) uint32 { return atomic.AndUint32(m.p32(off), v) }

func (m mem) cas64(off int64, old, v uint64) bool {
	return atomic.CompareAndSwapUint64(m.p64(off), old, v)
}
