package survey

import (
	"fmt"
	"sort"

	"kprobe/probe/plan"
	"kprobe/symbols"
)

// The program's restartable sequences (rseq(2)) stay as they are, and so do two
// neighbours of each:
//
//   - In a sequence any trap makes the kernel abort it, and what runs in a copy or a
//     detour isn't protected: it would be aborted each time, or not at all.
//   - The instruction in front of it says to the kernel that it begins. It must lead
//     there directly: a thread that is disturbed anywhere else after it has run no sequence
//     any more, as the kernel sees it, and would go through the rest unprotected.
//   - Four bytes in front of the place to which the kernel leads a thread are the
//     program's signature: where it finds others it kills the program.
//
// A probe at the place for aborts itself, or behind the sequence, is one like any other.

const signatureLen = 4

// SequenceRule says of several places why they can't be probed.
const SequenceRule = "they are in restartable sequences of the program's (rseq), or announce one, where the kernel would abort each hit"

// near is how far from a function its jumps may need bytes.
const near = 1 << 16

// inSequence says why the n bytes at an address of a file are not to be changed; "" if
// no restartable sequence is about.
func inSequence(w symbols.Site, n int) string {
	v := w.Vaddr
	for _, q := range w.Module.File.Sequences() {
		switch end := v + symbols.Vaddr(n); {
		case v < q.Abort && end > q.Abort-signatureLen:
			return "the kernel looks for these bytes in front of the place to which it leads a thread out of a restartable sequence (rseq), and kills the program where it finds others; " + instead(w, q.Abort)
		case v >= q.End || end < q.Start:
		case end == q.Start:
			return "it announces a restartable sequence (rseq) to the kernel, which begins behind it: a copy would leave the sequence unprotected; " + instead(w, q.End)
		default:
			return "it is in a restartable sequence of the program's (rseq), which the kernel would abort at each hit; " + instead(w, q.End)
		}
	}
	return ""
}

// instead says where to put a probe.
func instead(w symbols.Site, v symbols.Vaddr) string {
	fn := w.Func
	if name := fn.Symbol.Name; name != "" && v > fn.Start && v < fn.End {
		return fmt.Sprintf("probe %s or %s+%#x, behind it", name, name, uint64(v-fn.Start))
	}
	return fmt.Sprintf("probe what is behind it, at %v of the file", v)
}

// Sequences are the bytes about a function that no jump may cover.
func Sequences(m *symbols.Module, fn *symbols.Func) (out []plan.Range) {
	if m == nil || m.File == nil {
		return nil
	}
	add := func(from, to symbols.Vaddr) {
		if from < fn.End+near && to+near > fn.Start {
			out = append(out, plan.Range{Lo: uint64(m.Addr(from)), Hi: uint64(m.Addr(to))})
		}
	}
	for _, q := range m.File.Sequences() {
		add(q.Start-1, q.End)
		add(q.Abort-signatureLen, q.Abort)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Lo < out[j].Lo })
	return out
}
