package fetch

import "encoding/binary"

// What glibc's FILE looks like (libio/bits/types/struct_FILE.h): a magic in the
// upper half of its first word, and the file descriptor.
const (
	fileMagic     = 0xfbad0000
	fileMagicMask = 0xffff0000
	fileFD        = 112
)

// maxFD is above every descriptor that a process may have (fs.nr_open's
// default), and below every address.
const maxFD = 1 << 20

// path stores the path of descriptor v. A %pD that is too big to be a descriptor is taken for a
// FILE * if glibc's magic is there. Anything else faults.
func (e *evaluator) path(a *ArgProgram, v uint64, scratch []byte) {
	fd := int64(int32(v))
	if a.Type.Base == FilePath && v >= maxFD && v>>32 != 1<<32-1 {
		fd = -1
		if e.read(scratch[:4], v) && binary.LittleEndian.Uint32(scratch)&fileMagicMask == fileMagic &&
			e.read(scratch[:4], v+fileFD) {
			fd = int64(int32(binary.LittleEndian.Uint32(scratch)))
		}
	}
	if fd >= 0 && fd < maxFD && e.c.ReadLink != nil {
		if s, err := e.c.ReadLink(int(fd)); err == nil {
			e.putText(a.Slot, s)
			return
		}
	}
	e.putWord(a.Slot, TextFault)
}
