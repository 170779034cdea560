package memory

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Between the call that opens a file in the target and the one that closes it there, kprobe may
// run out of descriptors: its limit is low, or it traces hundreds of processes. An injected call
// takes some of kprobe's own, so the target's descriptor could not be closed any more and would
// stay. kprobe keeps a few for that call.

// spareDescriptors is how many descriptors an injected call takes at a time: it reads the
// target's mappings and a thread's state.
const spareDescriptors = 3

// descriptors are descriptors of kprobe that are kept free for later.
type descriptors struct{ list []int }

// reserveDescriptors takes descriptors. Their holder releases them, once or more.
func reserveDescriptors() (*descriptors, error) {
	d := &descriptors{}
	for range spareDescriptors {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			d.release()
			return nil, fmt.Errorf("keep descriptors of kprobe's own free: %w", err)
		}
		d.list = append(d.list, fd)
	}
	return d, nil
}

// release frees the descriptors.
func (d *descriptors) release() {
	for _, fd := range d.list {
		_ = unix.Close(fd)
	}
	d.list = nil
}
