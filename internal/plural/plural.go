// Package plural has the one rule for counts of things in messages.
package plural

import "strconv"

// Of gives a number with what there is so many of: Of(1, "file", "files") is "1 file".
func Of(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
