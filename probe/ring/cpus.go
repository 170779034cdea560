package ring

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseCPUs takes the contents of /sys/devices/system/cpu/possible, such as
// "0-3,8", and returns the highest number plus one: Params.CPUs for a target
// that may run on any of them. Errors wrap ErrParams.
func ParseCPUs(list string) (int, error) {
	most := -1
	for _, r := range strings.Split(strings.TrimSpace(list), ",") {
		lo, hi, isRange := strings.Cut(r, "-")
		if !isRange {
			hi = lo
		}
		a, err1 := strconv.Atoi(lo)
		b, err2 := strconv.Atoi(hi)
		if err1 != nil || err2 != nil || a < 0 || b < a {
			return 0, fmt.Errorf("%w: list of CPUs %q", ErrParams, list)
		}
		most = max(most, b)
	}
	if most >= MaxCPUs {
		return 0, fmt.Errorf("%w: CPU %d", ErrParams, most)
	}
	return most + 1, nil
}
