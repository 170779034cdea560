package procfs

import (
	"bytes"
	"os"
	"time"
)

// inExec reports whether a process is in the midst of an execve(2): the kernel
// has given it new memory and has not mapped the whole program yet. Its maps
// are empty or lack the program or its loader meanwhile. The kernel writes the
// auxiliary vector after the last of these mappings (create_elf_tables,
// fs/binfmt_elf.c), so until then the vector begins with its end, AT_NULL.
// A process that is gone, that is a zombie, or that can't be asked is in none.
func inExec(pid int) bool {
	var null [16]byte // a key and its value
	b, err := os.ReadFile(Image(pid).Path("auxv"))
	return err == nil && bytes.HasPrefix(b, null[:])
}

// Steps of the wait for an execve(2).
const (
	execStep = 200 * time.Microsecond
	execWait = 2 * time.Second // a disk that sleeps answers within it
)

// AwaitExec returns when a process is in no execve(2), or after 2 seconds.
func AwaitExec(pid int) {
	for end := time.Now().Add(execWait); inExec(pid) && time.Now().Before(end); {
		time.Sleep(execStep)
	}
}
