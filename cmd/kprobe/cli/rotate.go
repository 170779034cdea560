package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// rotation is the value of --rotate: SIZE, or SIZE,N. The zero value is none.
type rotation struct {
	size int64 // bytes
	keep int   // older files
}

// keptFiles is how many older files there are if it isn't said.
const keptFiles = 9

// smallestFile is the least size at which files begin anew: more than is written at once.
const smallestFile = 128 << 10

// Set implements pflag.Value.
func (r *rotation) Set(s string) error {
	text, number, more := strings.Cut(s, ",")
	size, err := parseSize(text)
	if err != nil {
		return err
	}
	keep := keptFiles
	if more {
		if keep, err = strconv.Atoi(number); err != nil || keep < 1 || keep > 9999 {
			return errors.New("keep 1 to 9999 older files")
		}
	}
	if size < smallestFile {
		return fmt.Errorf("give at least %s for a file", sizeText(smallestFile))
	}
	*r = rotation{int64(size), keep}
	return nil
}

// Type implements pflag.Value.
func (r *rotation) Type() string { return "SIZE[,N]" }

// String implements pflag.Value; nothing is the default.
func (r *rotation) String() string {
	if r.size == 0 {
		return ""
	}
	return fmt.Sprintf("%d,%d", r.size, r.keep)
}
