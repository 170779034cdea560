package quote

import "strconv"

// Numbered is the n-th of several things of one name: NAME, NAME#2, NAME#3. No name of a programming language has such an end.
func Numbered(name string, n int) string {
	if n < 2 {
		return name
	}
	return name + "#" + strconv.Itoa(n)
}

// Own returns the name, or the first NAME#N that isn't taken. Most readers of JSON take keys of one name for one.
func Own(name string, taken func(name string) bool) string {
	own := name
	for n := 2; taken(own); n++ {
		own = Numbered(name, n)
	}
	return own
}
