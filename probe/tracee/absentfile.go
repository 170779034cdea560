//go:build linux && amd64

package tracee

import (
	"bytes"
	"fmt"
	"os"
	"slices"

	"kprobe/internal/procfs"
	"kprobe/internal/untrusted"
	"kprobe/symbols"
)

// localTypes are file systems that the kernel reads from a disk by itself. On others (FUSE, NFS, overlays of such ones)
// the answer may be another program's, and in memory a program may fill a page itself (userfaultfd).
var localTypes = map[string]bool{
	"ext2": true, "ext3": true, "ext4": true, "xfs": true, "btrfs": true, "f2fs": true, "zfs": true, "bcachefs": true,
	"squashfs": true, "erofs": true, "iso9660": true, "vfat": true,
}

// isLocalFile reports whether a private mapping of a file is at an address, and the file is on a disk of the machine.
// If that can't be learnt in time, it isn't.
func (p *Process) isLocalFile(at uint64) bool {
	is, err := untrusted.Within(func() (bool, error) {
		maps, err := symbols.ReadMaps(p.pid)
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(maps, func(m symbols.Mapping) bool { return m.Contains(symbols.Addr(at)) })
		if i < 0 || !maps[i].IsFile() || maps[i].Shared {
			return false, nil
		}
		// The process may not see where its file is mounted, and kprobe may not.
		its, _ := os.ReadFile(procfs.Process(p.pid).Path("mountinfo"))
		own, _ := os.ReadFile("/proc/self/mountinfo")
		return isLocalDevice(slices.Concat(its, own), maps[i].Major, maps[i].Minor), nil
	})
	return err == nil && is
}

// isLocalDevice reports whether a list of mounts (/proc/PID/mountinfo) has one of a device, and says that its file system is one
// of localTypes.
func isLocalDevice(mounts []byte, major, minor uint32) bool {
	device := fmt.Appendf(nil, "%d:%d", major, minor)
	for line := range bytes.Lines(mounts) {
		// ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAG…] - TYPE SOURCE OPTIONS
		before, after, ok := bytes.Cut(line, []byte(" - "))
		f := bytes.Fields(before)
		if ok && len(f) > 2 && bytes.Equal(f[2], device) {
			kind, _, _ := bytes.Cut(after, []byte(" "))
			return localTypes[string(kind)]
		}
	}
	return false
}
