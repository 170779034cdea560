package graph

import (
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/output/recording"
)

// lastErrno is the largest number that the kernel and C libraries take for an error.
const lastErrno = 4095

// failure reports whether a result says that its function failed: a number from -4095
// to -1, or a pointer that is null. errno is the error's name, if it is one of the
// system's; -1 is none, as it mostly says only that there was one.
func failure(f recording.Field, v *recording.Value) (errno string, failed bool) {
	if v.State != recording.Whole {
		return "", false
	}
	n := int64(v.Int)
	switch f.Kind {
	case recording.Signed:
	case recording.Hex, recording.Unsigned:
		if isPointer(f) {
			return "", n == 0 || n < 0 && n >= -lastErrno
		}
		if f.Kind == recording.Unsigned {
			return "", false
		}
		n = int64(extended(v.Int))
	default:
		return "", false
	}
	if n >= 0 || n < -lastErrno {
		return "", false
	}
	if n < -1 {
		errno = unix.ErrnoName(syscall.Errno(-n))
	}
	return errno, true
}
