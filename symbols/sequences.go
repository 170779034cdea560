package symbols

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"slices"
)

// Sequence is a restartable sequence of a program (rseq(2)), as its description has it (struct
// rseq_cs). The kernel leads a thread that is disturbed between Start and End to Abort. A
// signature stands before Abort.
type Sequence struct {
	Start, End, Abort Vaddr
}

// SequenceSignature is the signature with which glibc registers its threads. It stands before
// every address to which the kernel leads one of them.
const SequenceSignature = 0x53053053

const (
	sequenceSize = 32 // of a description
	sequenceFrom = 8  // where its start, its length and the address for aborts are
	sequenceLen  = 16
	sequenceTo   = 24
)

// Sequences are the restartable sequences that the file describes, in order of address. Their
// descriptions are those in the section __rseq_cs, those that __rseq_cs_ptr_array lists, and,
// with or without section names, anything in its data that looks like a description and whose
// abort address follows SequenceSignature. Two kinds are not found: descriptions that a program
// makes as it runs; and, in a file without sections, those for threads that it registers itself
// with another signature. It is safe for concurrent use.
func (f *File) Sequences() []Sequence { return f.sequences.get(f.findSequences) }

func (f *File) findSequences() (out []Sequence) {
	var err error
	defer rescue(f.Path, &err)
	s := sequenceFinder{f: f, at: map[Vaddr]bool{}}
	s.inSections()
	s.bySignature()
	if len(s.at) == 0 {
		return nil
	}
	words := map[Vaddr]Vaddr{}
	for at := range s.at {
		words[at+sequenceFrom], words[at+sequenceTo] = 0, 0
	}
	s.f.eachRelative(func(slot, value Vaddr) {
		if _, ok := words[slot]; ok {
			words[slot] = value
		}
	})
	for at := range s.at {
		b, err := f.im.at(at, sequenceSize, "a restartable sequence")
		if err != nil || len(b) < sequenceSize || binary.LittleEndian.Uint32(b) != 0 { // of another version
			continue
		}
		word := func(off Vaddr) Vaddr {
			if v := words[at+off]; v != 0 {
				return v
			}
			return Vaddr(binary.LittleEndian.Uint64(b[off:]))
		}
		q := Sequence{Start: word(sequenceFrom), Abort: word(sequenceTo)}
		q.End = q.Start + Vaddr(binary.LittleEndian.Uint64(b[sequenceLen:]))
		if q.End > q.Start && f.Executable(q.Start) && f.Executable(q.End-1) && f.Executable(q.Abort) && (q.Abort < q.Start || q.Abort >= q.End) {
			out = append(out, q)
		}
	}
	slices.SortFunc(out, func(a, b Sequence) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End)) })
	return slices.Compact(out)
}

// sequenceFinder collects the addresses at which descriptions may lie.
type sequenceFinder struct {
	f  *File
	at map[Vaddr]bool
}

// inSections finds those that the file's sections name.
func (s *sequenceFinder) inSections() {
	im := s.f.im
	lists := map[Vaddr]bool{} // words of lists
	for i := range im.sections {
		switch sec := &im.sections[i]; sec.name {
		case "__rseq_cs":
			for at := sec.addr; at+sequenceSize <= sec.addr+Vaddr(sec.size); at += sequenceSize {
				s.at[at] = true
			}
		case "__rseq_cs_ptr_array":
			b, err := im.data(sec)
			for off := 0; err == nil && off+8 <= len(b); off += 8 {
				at := sec.addr + Vaddr(off)
				lists[at] = true
				s.at[Vaddr(binary.LittleEndian.Uint64(b[off:]))] = true
			}
		}
	}
	if len(lists) > 0 {
		s.f.eachRelative(func(slot, value Vaddr) {
			if lists[slot] {
				s.at[value] = true
			}
		})
	}
}

// bySignature finds data that leads behind a signature.
func (s *sequenceFinder) bySignature() {
	im := s.f.im
	behind := map[Vaddr]bool{}
	sig := binary.LittleEndian.AppendUint32(nil, SequenceSignature)
	for v := range s.f.inCode(sig) {
		behind[v+Vaddr(len(sig))] = true
	}
	if len(behind) == 0 {
		return
	}
	s.f.eachRelative(func(slot, value Vaddr) {
		if behind[value] {
			s.at[slot-sequenceTo] = true
		}
	})
	for _, seg := range im.segments {
		if seg.typ != elf.PT_LOAD || seg.flags&elf.PF_X != 0 {
			continue
		}
		for at, b := range im.eachPiece(seg.vaddr, seg.vaddr+Vaddr(seg.filesz), 7) {
			for i := int(-at & 7); i+8 <= len(b); i += 8 {
				if behind[Vaddr(binary.LittleEndian.Uint64(b[i:]))] {
					s.at[at+Vaddr(i)-sequenceTo] = true
				}
			}
		}
	}
}
