package plan

import "kprobe/probe/insn"

// reaches reports whether the k-th instruction is certainly one: control flow leads to it from
// the start of a function, through decoded instructions and jump tables. Data among a
// function's code may look like instructions. Nothing leads there, and none of it may be moved
// to make room.
func (f *Func) reaches(k int) bool {
	if f.reached == nil {
		f.flow()
	}
	return f.reached[k]
}

// flow finds what is reachable from the functions' starts.
func (f *Func) flow() {
	f.reached = make([]bool, len(f.insts))
	var todo []int
	lead := func(off int) {
		if off < 0 || off >= f.size {
			return
		}
		if k := f.index(f.start + uint64(off)); k >= 0 && !f.reached[k] {
			f.reached[k] = true
			todo = append(todo, k)
		}
	}
	for _, off := range f.entries {
		lead(off)
	}
	for _, off := range f.switches {
		lead(off)
	}
	if known := f.known.Target; known != nil {
		for k, i := range f.insts {
			if !f.reached[k] && known(f.start+uint64(i.off)) {
				lead(i.off)
			}
		}
	}
	for len(todo) > 0 {
		k := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		i := f.insts[k]
		in, code := f.whole(i)
		if to, ok := in.Target(f.start+uint64(i.off), code); ok && to-f.start < uint64(f.size) {
			lead(int(to - f.start))
		}
		if !i.Is(insn.Stops) {
			lead(i.end())
		}
	}
}
