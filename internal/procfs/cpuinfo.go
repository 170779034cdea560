//go:build linux

package procfs

import (
	"os"
	"slices"
	"strings"
	"sync"
)

// cpuFlags are the features of the first processor that /proc/cpuinfo lists; none if
// they can't be read.
var cpuFlags = sync.OnceValue(func() []string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil
	}
	return flagsOf(string(text))
})

func flagsOf(text string) []string {
	for line := range strings.Lines(text) {
		if name, list, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "flags" {
			return strings.Fields(list)
		}
	}
	return nil
}

// CPUHas reports whether the processor and the kernel have a feature, by its name
// in /proc/cpuinfo.
func CPUHas(flag string) bool { return slices.Contains(cpuFlags(), flag) }
