// Package kept keeps definitions between runs of kprobe, in a text file in the
// syntax of the kernel's kprobe_events:
//
//	# a comment of the user's, which stays
//	p:kprobes/open /usr/lib/x86_64-linux-gnu/libc.so.6:openat path=+0($arg2):string
//	# disabled: web/slow
//	r:web/slow /srv/bin/server:handle ms=$retval:u64
//
// The file is whole at every moment: a change is made under a lock, in a new
// file that takes the old one's place when it is on the disk. Whoever only
// reads needs no lock. A process that is killed in the middle, or a disk that
// is full, leaves the file as it was.
//
// A trace that uses kept events says so in a file of its own, which is locked
// for as long as the trace lives. Such events can't be deleted: they are busy.
package kept
