package ring

// rdtsc is the instruction (Intel SDM vol. 2B).
//
//go:noescape
func rdtsc() uint64
