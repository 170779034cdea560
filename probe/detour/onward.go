package detour

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"kprobe/fetch"
	"kprobe/probe/asm"
)

// Jumps to functions that only the program knows
//
// A function may end in a jump through a register or memory. If the target notes its calls in
// the same common table, or looks there for calls that arrive, the call passes on like any other:
// the row is marked, and the target's entry accepts that. The detour of the jump looks up such
// targets in Noting, a set in the target's memory. Where such a call will end isn't known when
// returns are planned. So its row says that any return which looks into the table may be its own
// (anywhere), and such calls are only counted.
//
// If the jump leads to anything else, and a noted call ends there, the call is seen again where
// it returns to, if that address has a Landing (landing.go): the set Onward.Back says which
// have. Otherwise, or if more than a count is wanted, the code traps at Detour.NoRoom, with the
// program's registers, and the tracer sees to it.

// anywhere is the bit of an owner whose calls may return by any of the returns that look into
// the table.
const anywhere = 1 << 30

// ownerID is the number of an owner.
const ownerID = alreadyThere - 1

// Noting is a set of entries of functions that note their calls in a table, or look there for calls that arrive: a copy
// of the set in the target's memory at Addr. The zero Noting is empty and has no place.
type Noting struct {
	Addr  uint64
	words []uint64 // 0: free, 1: was in use; a power of two of them
	used  int      // of them that aren't 0
}

// NewNoting makes room for n entries.
func NewNoting(n int) *Noting { return &Noting{words: make([]uint64, 1<<bits.Len(uint(2*n)|63))} }

// Size is its size in bytes. Without entries all are zero.
func (s *Noting) Size() int { return 8 * len(s.words) }

// Put adds an entry, and returns the index of the word that has changed. It is negative if none
// has: the set contains the entry, or is full. One word always stays free, and ends searches.
func (s *Noting) Put(at uint64) int {
	if s.Has(at) || at <= 1 {
		return -1
	}
	for i := s.first(at); ; i = (i + 1) & (len(s.words) - 1) {
		switch w := s.words[i]; {
		case w == 0 && s.used+1 == len(s.words):
			return -1
		case w == 0:
			s.used++
		case w != 1:
			continue
		}
		s.words[i] = at
		return i
	}
}

// Drop removes an entry, and returns the index of the word that has changed, or a negative
// number.
func (s *Noting) Drop(at uint64) int {
	i := s.find(at)
	if i >= 0 {
		s.words[i] = 1
	}
	return i
}

// Has reports whether the set contains an entry.
func (s *Noting) Has(at uint64) bool { return s.find(at) >= 0 }

func (s *Noting) find(at uint64) int {
	for i := s.first(at); s.words[i] != 0; i = (i + 1) & (len(s.words) - 1) {
		if s.words[i] == at {
			return i
		}
	}
	return -1
}

// Word returns a word's address and bytes.
func (s *Noting) Word(i int) (at uint64, b []byte) {
	return s.Addr + 8*uint64(i), binary.LittleEndian.AppendUint64(nil, s.words[i])
}

// Bytes returns the whole set.
func (s *Noting) Bytes() []byte {
	b := make([]byte, 0, s.Size())
	for _, w := range s.words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// shift is the number of bits by which a hash is shifted right to be a word's index.
func (s *Noting) shift() uint8 { return uint8(32 - bits.TrailingZeros(uint(len(s.words)))) }

func (s *Noting) first(at uint64) int { return int(uint32(at) * golden32u >> s.shift()) }

// Onward is what is known of where calls go that take a jump to unknown code.
type Onward struct {
	To   *Noting // the targets to which calls pass on; nil is none
	Back *Noting // the return addresses that have a Landing; nil is none
}

// BuildOnward makes the detour of a jump to an address that the chain gives. tail emits the
// jump.
func BuildOnward(base uint64, p *Params, k Calls, to *fetch.Chain, onward Onward, tail func(c *asm.Code) error) (*Detour, error) {
	return tight(base, p, func(c *asm.Code) (*Detour, error) { return buildOnward(c, p, k, to, onward, tail) })
}

func buildOnward(c *asm.Code, p *Params, k Calls, to *fetch.Chain, onward Onward, tail func(c *asm.Code) error) (*Detour, error) {
	b := newBuilder(c, p)
	defer b.free()
	if err := k.check(); err != nil {
		return nil, err
	}
	if !k.Common {
		return nil, fmt.Errorf("calls %+v that go anywhere are in no table in common", k)
	}
	if !p.NoRedZone {
		b.frame.skip = redZone
	}
	b.frame.regs = append(baseRegs(), asm.DI)
	if err := b.stack(); err != nil {
		return nil, err
	}
	f := &b.frame
	out, none, unseen, trap := b.NewLabel(), b.NewLabel(), b.NewLabel(), b.NewLabel()
	f.save(b.Code)
	e := &calling{returning: returning{b: b}, k: k}
	if onward.To == nil {
		b.Jmp(none)
	} else {
		b.value(to, out) // if it can't be read, the program's own jump faults
		b.searchNoting(onward.To, none)
		e.first()
		b.passOn()
	}
	b.Bind(out)
	f.restore()
	b.later(func() {
		noted := b.NewLabel()
		b.Bind(none)
		e.first()
		b.eachRow(func(on asm.Label) {
			b.Load(asm.W64, asm.AX, asm.At(asm.DI, 0))
			b.OpLoad(asm.Cmp, asm.W64, asm.AX, asm.At(asm.CX, callReturn))
			b.Jcc(asm.E, noted)
		})
		b.Jmp(out)
		b.Bind(noted)
		if onward.Back != nil {
			b.searchNoting(onward.Back, unseen)
			e.first()
			b.passOn()
			b.Jmp(out)
		} else {
			b.Jmp(unseen)
		}
	})
	b.later(func() {
		b.Bind(unseen)
		f.restore()
		f.outside(b.Code)
		b.Bind(trap)
		b.Int3()
		b.Int3() // the tracer and the fallback handler continue the thread at the copy
	})
	d, err := b.leave(b.Here(), tail)
	if err != nil {
		return nil, err
	}
	off, _ := b.Offset(trap)
	d.noRoomAt(b.Base() + uint64(off))
	return d, nil
}

// searchNoting continues at none if the address in AX isn't in the set. Changes AX, DX, SI, DI.
func (b *builder) searchNoting(noting *Noting, none asm.Label) {
	b.Mov(asm.W64, asm.DI, asm.AX)
	b.ImulImm(asm.W32, asm.AX, asm.AX, golden32)
	b.ShiftImm(asm.Shr, asm.W32, asm.AX, noting.shift())
	b.MovAbs(asm.SI, noting.Addr)
	search, found := b.Mark(), b.NewLabel()
	b.Load(asm.W64, asm.DX, asm.Indexed(asm.SI, asm.AX, 8, 0))
	b.Op(asm.Cmp, asm.W64, asm.DX, asm.DI)
	b.Jcc(asm.E, found)
	b.Test(asm.W64, asm.DX, asm.DX)
	b.Jcc(asm.E, none)
	b.OpImm(asm.Add, asm.W32, asm.AX, 1)
	b.OpImm(asm.And, asm.W32, asm.AX, int32(len(noting.words)-1))
	b.Jmp(search)
	b.Bind(found)
}
