// Package kept keeps definitions between runs of kprobe, in a text file in the syntax of the
// kernel's kprobe_events:
//
//	# a comment of the user's, which stays
//	p:kprobes/open /usr/lib/x86_64-linux-gnu/libc.so.6:openat path=+0($arg2):string
//	# disabled: web/slow
//	r:web/slow /srv/bin/server:handle ms=$retval:u64
//
// The file is complete at every moment. A change is made under a lock, in a new file that
// replaces the old one once it is on the disk. Readers need no lock. If a process is killed in
// the middle, or the disk is full, the file stays as it was.
//
// A trace that uses kept events notes that in a file of its own, which is locked for as long as
// the trace lives. Such events can't be deleted: they are busy.
package kept
