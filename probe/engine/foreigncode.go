package engine

import (
	"kprobe/probe/plan"
	"kprobe/symbols"
)

// covered compares the instructions that a jump displaces, and the bytes behind them that belong to
// the patch, with the file. The error says if they differ.
func (tg *Target) covered(p *plan.Packed) error {
	at := symbols.Addr(p.At)
	if err := tg.pristine(at, p.Displaced()); err != nil || p.Lock() <= p.End() {
		return err
	}
	m := tg.Space.ModuleAt(at)
	if m == nil || m.File == nil {
		return errNoFile
	}
	end := symbols.Addr(p.End())
	b, err := m.File.Text(m.Vaddr(end), int(p.Lock()-p.End()))
	if err != nil {
		return err
	}
	return tg.pristine(end, b)
}
