package cli

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"kprobe/probe"
)

// sizeValue is the value of --ring: bytes, or with K, M or G behind them KiB, MiB
// or GiB; rounded up to a power of two.
type sizeValue int

var errSize = errors.New("give a size, such as 512K, 16M or 1G")

// Set implements pflag.Value.
func (v *sizeValue) Set(s string) error {
	n, err := parseSize(s)
	if err != nil {
		return err
	}
	if n < probe.MinRing || n > probe.MaxRing {
		return fmt.Errorf("a ring has from %s to %s", sizeText(probe.MinRing), sizeText(probe.MaxRing))
	}
	*v = sizeValue(1 << bits.Len64(n-1))
	return nil
}

// parseSize reads bytes, or with K, M or G behind them KiB, MiB or GiB.
func parseSize(s string) (uint64, error) {
	number, shift := strings.ToUpper(s), 0
	for i, suffix := range []string{"K", "M", "G"} {
		for _, long := range []string{suffix + "IB", suffix} {
			if rest, ok := strings.CutSuffix(number, long); ok && shift == 0 {
				number, shift = rest, 10*(i+1)
			}
		}
	}
	n, err := strconv.ParseUint(number, 10, 33)
	if err != nil {
		return 0, errSize
	}
	return n << shift, nil
}

// Type implements pflag.Value.
func (v *sizeValue) Type() string { return "SIZE" }

// String implements pflag.Value; nothing is the default.
func (v *sizeValue) String() string {
	if *v == 0 {
		return ""
	}
	return sizeText(int(*v))
}

// sizeText writes a power of two from 1 KiB on.
func sizeText(n int) string {
	shift := bits.TrailingZeros(uint(n)) / 10 * 10
	return strconv.Itoa(n>>shift) + []string{"", "K", "M", "G"}[shift/10]
}
