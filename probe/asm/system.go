package asm

// Lock is the lock prefix of the instruction that is emitted next. That must
// be one with a destination in memory.
func (c *Code) Lock() { c.Raw(0xf0) }

// Pause is what a loop that waits for another CPU does.
func (c *Code) Pause() { c.Raw(0xf3, 0x90) }

// Xadd is xadd [m], r: r becomes the old value, [m] the sum.
func (c *Code) Xadd(w Width, m Mem, r Reg) {
	f := op2(w, 0xc1)
	if w == W8 {
		f = op2(w, 0xc0)
		f.rex8 = true
	}
	c.memory(f, r, m, 0)
}

// Cmpxchg is cmpxchg [m], r: if [m] is rax (of that width) it becomes r and
// the zero flag is set, else rax becomes [m].
func (c *Code) Cmpxchg(w Width, m Mem, r Reg) {
	f := op2(w, 0xb1)
	if w == W8 {
		f = op2(w, 0xb0)
		f.rex8 = true
	}
	c.memory(f, r, m, 0)
}

// Cmpxchg16b is cmpxchg16b [m], of sixteen bytes that are aligned: if they are rdx:rax they
// become rcx:rbx and the zero flag is set, else rdx:rax becomes them.
func (c *Code) Cmpxchg16b(m Mem) { c.memory(op2(W64, 0xc7), 1, m, 0) }

// Xchg is xchg [m], r, which is atomic without a lock prefix.
func (c *Code) Xchg(w Width, m Mem, r Reg) { c.memory(sized(w, 0x86), r, m, 0) }

// XchgReg is xchg a, b.
func (c *Code) XchgReg(w Width, a, b Reg) { c.direct(sized(w, 0x86), b, a) }

// Pushf is pushfq.
func (c *Code) Pushf() { c.Raw(0x9c) }

// Popf is popfq.
func (c *Code) Popf() { c.Raw(0x9d) }

// Lahf puts SF, ZF, AF, PF and CF into ah.
func (c *Code) Lahf() { c.Raw(0x9f) }

// Sahf takes SF, ZF, AF, PF and CF from ah.
func (c *Code) Sahf() { c.Raw(0x9e) }

// Rdtsc reads the time stamp counter into edx:eax.
func (c *Code) Rdtsc() { c.Raw(0x0f, 0x31) }

// Rdpid reads IA32_TSC_AUX into r; Linux keeps node<<12 | CPU there.
func (c *Code) Rdpid(r Reg) { c.direct(op2(W32, 0xc7).prefix(0xf3), 7, r) }

// Lsl is lsl dst, src: the limit of the segment that src selects. Linux keeps
// node<<12 | CPU as the limit of selector 0x7b.
func (c *Code) Lsl(dst, src Reg) { c.direct(op2(W32, 0x03), dst, src) }

// Rdfsbase reads the base of fs; the kernel must allow it (bit 1 of AT_HWCAP2).
func (c *Code) Rdfsbase(r Reg) { c.direct(op2(W64, 0xae).prefix(0xf3), 0, r) }

// Rdgsbase reads the base of gs; the kernel must allow it (bit 1 of AT_HWCAP2).
func (c *Code) Rdgsbase(r Reg) { c.direct(op2(W64, 0xae).prefix(0xf3), 1, r) }

// Syscall is syscall.
func (c *Code) Syscall() { c.Raw(0x0f, 0x05) }

// Int3 is the one-byte breakpoint.
func (c *Code) Int3() { c.Raw(0xcc) }

// Hlt is hlt, which faults (SIGSEGV) in user mode.
func (c *Code) Hlt() { c.Raw(0xf4) }

// Endbr is endbr64.
func (c *Code) Endbr() { c.Raw(0xf3, 0x0f, 0x1e, 0xfa) }

// Nop emits n bytes of no-operation, in instructions of up to nine bytes
// (Intel SDM vol. 2B, NOP, table 4-12).
func (c *Code) Nop(n int) {
	for n > 0 {
		k := min(n, 9)
		c.nop(k)
		n -= k
	}
}

func (c *Code) nop(n int) {
	switch n {
	case 1:
		c.Raw(0x90)
	case 2:
		c.Raw(0x66, 0x90)
	case 3:
		c.Raw(0x0f, 0x1f, 0x00)
	case 4:
		c.Raw(0x0f, 0x1f, 0x40, 0)
	case 5:
		c.Raw(0x0f, 0x1f, 0x44, 0, 0)
	case 6:
		c.Raw(0x66, 0x0f, 0x1f, 0x44, 0, 0)
	case 7:
		c.Raw(0x0f, 0x1f, 0x80, 0, 0, 0, 0)
	case 8:
		c.Raw(0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0)
	case 9:
		c.Raw(0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0)
	}
}

// Rdssp is rdsspq r: the shadow stack pointer, or r unchanged where the thread
// has no shadow stack.
func (c *Code) Rdssp(r Reg) { c.direct(op2(W64, 0x1e).prefix(0xf3), 1, r) }
