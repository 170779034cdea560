package memory

import (
	"os"

	"golang.org/x/sys/unix"

	"kprobe/probe/ring"
)

// PossibleCPUs is how many CPUs a process may ever run on: as many parts a memory file has.
func PossibleCPUs() int {
	b, err := os.ReadFile("/sys/devices/system/cpu/possible")
	if err == nil {
		if n, err := ring.ParseCPUs(string(b)); err == nil {
			return n
		}
	}
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) == nil {
		return max(set.Count(), 1)
	}
	return ring.MaxCPUs
}
