package fetch

// Registers is the sets of registers that the program reads: at the hit, and at the entry before it. Each has the bit
// 1 << r of a register r.
func (p *Program) Registers() (hit, entry uint32) {
	for i := range p.Entry {
		entry |= p.Entry[i].registers()
	}
	for i := range p.Args {
		a := &p.Args[i]
		hit |= a.Chain.registers()
		if a.Len != nil {
			hit |= a.Len.registers()
		}
		for k := range a.Parts {
			hit |= a.Parts[k].Chain.registers()
		}
	}
	return hit, entry
}

// Reads reports whether the program reads a register, at the hit or at the entry before it.
func (p *Program) Reads(r Reg) bool {
	hit, entry := p.Registers()
	return (hit|entry)>>r&1 != 0
}

// registers is the set of registers that a chain reads.
func (c *Chain) registers() (read uint32) {
	if c.Source == SourceReg || c.Source == SourceComputed && c.From == SourceReg {
		read |= 1 << c.Reg
	}
	for i := range c.Steps {
		if c.Steps[i].FromReg {
			read |= 1 << c.Steps[i].Reg
		}
	}
	return read
}
