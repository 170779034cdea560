package survey

import (
	"bytes"
	"encoding/binary"
	"slices"

	"kprobe/probe/insn"
	"kprobe/symbols"
)

// Births are the places of a file at which a task may be made that shares its maker's
// memory, system call instructions whose number is, or may be, that of clone, clone3 or
// vfork; those at which seccomp rules may be set, by seccomp or prctl; and those at which memory
// may be taken away that could be read before.

// Numbers of the system calls that make tasks, and that set rules.
const (
	SysClone  = 56
	SysVfork  = 58
	SysClone3 = 435

	SysPrctl   = 157
	SysSeccomp = 317
)

// AnyNumber is the number of a system call that is known only when it is made.
const AnyNumber = -1

// Birth is such an instruction.
type Birth struct {
	At     symbols.Vaddr // of the system call instruction
	Before symbols.Vaddr // of the instruction that always runs before it; 0: none does
	Behind symbols.Vaddr
	Func   symbols.Func // what is around it, the unwinding information may end before
	Number int          // AnyNumber: it is where From says, before the instruction at Before
	From   Number
	Task   bool // it may make a task
	Rules  bool // it may set seccomp rules
	Unmaps bool // it may end a mapping, or change what can be read
	Blurs  bool // the instruction at Before sets one of its arguments
}

// Number says where a number is: in a register, or in the memory that it leads to.
type Number struct {
	Reg    insn.Reg
	Memory bool
	Off    int64
}

const (
	sharesMemory  = 0x100 // CLONE_VM
	setsSeccomp   = 22    // PR_SET_SECCOMP
	setModeFilter = 1     // SECCOMP_SET_MODE_STRICT is 0
)

// unmapping are the numbers of the system calls that may end a mapping: mmap, mprotect, munmap, brk,
// mremap, madvise, shmat; and of those that change in other ways what can be read: personality,
// userfaultfd, pkey_mprotect, pkey_alloc, process_madvise.
var unmapping = []uint32{9, 10, 11, 12, 25, 28, 30, 135, 323, 329, 330, 440}

// Unmapping lists these numbers in ascending order.
func Unmapping() []uint32 { return slices.Clone(unmapping) }

// arguments are the registers of the arguments that say what is unmapped.
var arguments = insn.Set(insn.RDI, insn.RSI, insn.RDX, insn.R10, insn.R8)

// Births finds the places of a file. unknown are addresses at which an instruction that makes a task
// may stand and no function is known; blind those at which one may stand that ends a mapping.
func Births(file *symbols.File) (list []Birth, unknown, blind []symbols.Vaddr) {
	var fn symbols.Func
	var calls []Birth
	for _, v := range file.Syscalls() {
		if code, err := file.Text(v-signalReturn, signalReturn+2); err == nil && IsRestorer(code) {
			continue
		}
		if v < fn.Start || v >= fn.End {
			var ok bool
			if fn, ok = around(file, v); !ok {
				fn = symbols.Func{}
				task, unmaps := mayMake(file, v)
				if task {
					unknown = append(unknown, v)
				}
				if unmaps {
					blind = append(blind, v)
				}
				continue
			}
			_, sweep, err := Decode(file, &fn, symbols.Addr(fn.Start))
			if err != nil {
				unknown, blind = append(unknown, v), append(blind, v)
				fn = symbols.Func{}
				continue
			}
			calls = birthsIn(fn, sweep)
		}
		if i := slices.IndexFunc(calls, func(b Birth) bool { return b.At == v }); i >= 0 {
			list = append(list, calls[i])
		}
	}
	return list, unknown, blind
}

// signalReturn is how long the instruction is that stands before the system call of the
// signal trampoline, which is in no function.
const signalReturn = 7

// cutOff is how far behind the unwinding information of a function its code may go on:
// that of clone ends where two tasks leave it.
const cutOff = 64

// around is the function around an address.
func around(file *symbols.File, v symbols.Vaddr) (symbols.Func, bool) {
	if fn, ok := file.FuncAt(v); ok && fn.End > fn.Start {
		return fn, true
	}
	end := v + cutOff
	for u := v + 1; u < end; u++ {
		if _, ok := file.FuncAt(u); ok {
			end = u
		}
	}
	for u := v - 1; v-u < cutOff; u-- {
		if fn, ok := file.FuncAt(u); ok && fn.End > fn.Start {
			fn.End = end
			return fn, true
		}
	}
	return symbols.Func{}, false
}

// mayMake reports whether bytes that are in no function that is known may be a system call that makes
// a task, or one that ends a mapping: those before have one of the numbers. Most are data.
func mayMake(file *symbols.File, v symbols.Vaddr) (task, unmaps bool) {
	code, err := file.Text(v-cutOff, cutOff)
	if err != nil {
		return true, true
	}
	has := func(n uint32, before ...byte) bool {
		return bytes.Contains(code, binary.LittleEndian.AppendUint32(before, n)) || n < 128 && bytes.Contains(code, []byte{0x6a, byte(n)})
	}
	for _, n := range [...]uint32{SysClone, SysVfork, SysClone3} {
		task = task || has(n)
	}
	for _, n := range unmapping { // mov eax; small numbers alone are everywhere
		unmaps = unmaps || has(n, 0xb8) || has(n, 0xc0)
	}
	return task, unmaps
}

// birthsIn finds those of a function.
func birthsIn(fn symbols.Func, sweep *insn.Function) (out []Birth) {
	k := newKnower(sweep)
	for i, at := range k.at {
		if !k.inst[i].Is(insn.Syscall) {
			continue
		}
		number, known := k.in[i].of(insn.RAX)
		b := Birth{At: symbols.Vaddr(at), Behind: symbols.Vaddr(at + uint64(k.inst[i].Len)), Func: fn, Number: AnyNumber, Task: true, Rules: true, Unmaps: true}
		if known {
			b.Task, b.Rules = slices.ContainsFunc(number, makesTask), slices.ContainsFunc(number, setsRules)
			b.Unmaps = slices.ContainsFunc(number, func(v uint32) bool { return slices.Contains(unmapping, v) })
			if len(number) == 1 {
				b.Number = int(number[0])
			}
		}
		if first, known := k.in[i].of(insn.RDI); known {
			switch none := func(does func(v uint32) bool) bool { return !slices.ContainsFunc(first, does) }; b.Number {
			case SysClone:
				b.Task = !none(func(v uint32) bool { return v&sharesMemory != 0 })
			case SysPrctl:
				b.Rules = !none(func(v uint32) bool { return v == setsSeccomp })
			case SysSeccomp:
				b.Rules = !none(func(v uint32) bool { return v <= setModeFilter })
			}
		}
		if !b.Task && !b.Rules && !b.Unmaps {
			continue
		}
		if i > 0 && k.at[i-1]+uint64(k.inst[i-1].Len) == at && !k.entered[i] && k.next(i-1) {
			var ok bool
			if b.From, ok = k.numberBefore(i - 1); (ok || b.Number != AnyNumber) && !k.inst[i-1].RegsWritten().Has(insn.RDI) {
				b.Before = symbols.Vaddr(k.at[i-1])
				b.Blurs = k.inst[i-1].RegsWritten()&arguments != 0
			}
		}
		out = append(out, b)
	}
	return out
}

// numberBefore says where the number is before the instruction that may set it.
func (k *knower) numberBefore(i int) (Number, bool) {
	in, code := k.inst[i], k.code[i]
	if !in.RegsWritten().Has(insn.RAX) {
		return Number{Reg: insn.RAX}, true
	}
	if in.Encoding != insn.Legacy || in.Map != 0 || in.Prefixes&^insn.PrefixREX != 0 {
		return Number{}, false
	}
	reg := in.RegField()
	rm, direct := in.RegOperand()
	switch {
	case in.Opcode == 0x89 && direct && rm == insn.RAX:
		return Number{Reg: reg}, true
	case in.Opcode == 0x8b && direct && reg == insn.RAX:
		return Number{Reg: rm}, true
	case in.Opcode == 0x8b && reg == insn.RAX:
		base, index, _, disp, ok := in.Mem(code)
		return Number{Reg: base, Memory: true, Off: disp}, ok && base != insn.NoReg && index == insn.NoReg
	}
	return Number{}, false
}

func makesTask(v uint32) bool { return v == SysClone || v == SysVfork || v == SysClone3 }

func setsRules(v uint32) bool { return v == SysPrctl || v == SysSeccomp }

// values are the low halves that registers may have: nil is anything.
type values [16][]uint32

// mostValues is how many values of a register are told apart.
const mostValues = 8

func (v *values) of(r insn.Reg) (list []uint32, known bool) { return v[r], len(v[r]) > 0 }

// join adds what registers may have by another way, and reports whether that changes
// anything.
func (v *values) join(w *values) (changed bool) {
	for r := range v {
		if v[r] == nil {
			continue
		}
		if w[r] == nil {
			v[r], changed = nil, true
			continue
		}
		for _, x := range w[r] {
			if slices.Contains(v[r], x) {
				continue
			}
			changed = true
			if len(v[r]) == mostValues {
				v[r] = nil
				break
			}
			v[r] = append(slices.Clip(v[r]), x)
		}
	}
	return changed
}

// knower works out what registers have at each instruction of a function.
type knower struct {
	at      []uint64
	inst    []insn.Inst
	code    [][]byte
	in      []values
	entered []bool // by a branch, or by who knows whom
}

func newKnower(f *insn.Function) *knower {
	k := &knower{}
	index := map[uint64]int{}
	for at, i := range f.All() {
		_, code, _ := f.At(at)
		index[at] = len(k.at)
		k.at, k.inst, k.code = append(k.at, at), append(k.inst, i), append(k.code, code)
	}
	n := len(k.at)
	k.in, k.entered = make([]values, n), make([]bool, n)
	leads := make([][]int, n)
	for t := range f.Targets() {
		if to, ok := index[t.To]; ok && !t.Call {
			from := index[t.From]
			leads[from] = append(leads[from], to)
			k.entered[to] = true
		}
	}
	for _, t := range f.Tables() {
		for _, to := range t.Targets {
			if i, ok := index[to]; ok {
				leads[index[t.Jump]] = append(leads[index[t.Jump]], i)
				k.entered[i] = true
			}
		}
	}
	seen := make([]bool, n)
	var todo []int
	reach := func(i int, v *values) {
		switch {
		case !seen[i]:
			seen[i], k.in[i] = true, *v
		case !k.in[i].join(v):
			return
		}
		todo = append(todo, i)
	}
	for root := range n {
		if seen[root] || k.inst[root].Is(insn.Nop) && root > 0 {
			continue // padding is no way to anything
		}
		// The entry, or what nothing is known to lead to.
		k.entered[root] = true
		reach(root, &values{})
		for len(todo) > 0 {
			i := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			out := k.behind(i)
			for _, to := range leads[i] {
				reach(to, &out)
			}
			if k.next(i) && i+1 < n && k.at[i+1] == k.at[i]+uint64(k.inst[i].Len) {
				reach(i+1, &out)
			}
		}
	}
	return k
}

// next reports whether control may go on behind an instruction.
func (k *knower) next(i int) bool {
	return !k.inst[i].Flags.Any(insn.Ret|insn.Stops|insn.Halt) && !k.inst[i].Is(insn.Jmp)
}

// clobbered are the registers that have a called function's result. What else it may
// change nobody looks at behind it, unless it is known to leave that alone.
var clobbered = insn.Set(insn.RAX, insn.RDX)

// behind is what registers have behind an instruction.
func (k *knower) behind(i int) values {
	v, in, code := k.in[i], k.inst[i], k.code[i]
	written := in.RegsWritten()
	var to insn.Reg
	var value []uint32
	sets := false
	switch op := in.Opcode; {
	case in.Encoding != insn.Legacy || in.Map != 0 || in.Prefixes&^insn.PrefixREX != 0:
	case op&0xf8 == 0xb8:
		if x, ok := in.Signed(code); ok {
			to, value, sets = insn.Reg(op&7|in.REX&insn.REXB<<3), []uint32{uint32(x)}, true
		}
	case op == 0xc7 && in.ModRM>>3&7 == 0:
		x, ok := in.Signed(code)
		if r, isReg := in.RegOperand(); ok && isReg {
			to, value, sets = r, []uint32{uint32(x)}, true
		}
	case op == 0x89 || op == 0x8b || op == 0x31 || op == 0x33:
		if rm, isReg := in.RegOperand(); isReg {
			reg := in.RegField()
			from := rm
			if to = reg; op == 0x89 || op == 0x31 {
				to, from = rm, reg
			}
			if op == 0x89 || op == 0x8b {
				value, sets = v[from], true
			} else if reg == rm {
				value, sets = []uint32{0}, true
			}
		}
	}
	if in.Flags.Any(insn.Call) {
		written |= clobbered
	}
	if in.Is(insn.Syscall) {
		written |= insn.Set(insn.RAX, insn.RCX, insn.R11)
	}
	for r := range v {
		if written.Has(insn.Reg(r)) {
			v[r] = nil
		}
	}
	if sets {
		v[to] = value
	}
	return v
}
