package detour

import "slices"

// togetherMost is how many sites Together enters at once.
const togetherMost = 1 << 16

// Together makes room for n sites, has enter insert them, and enters them in order of their slots: the slots of sites
// that come one after another lie all over the half, and each store would touch another page. enter may call Insert and
// Spare. What it inserts is in the table when Together returns.
func (t *Table) Together(n int, enter func() error) error {
	t.Reserve(n)
	t.together, t.fresh = true, make([]tableSite, 0, min(n, togetherMost))
	err := enter()
	t.together = false
	if ferr := t.enterFresh(); err == nil {
		err = ferr
	}
	t.fresh = nil
	return err
}

// later is Insert for a site that is entered with others.
func (t *Table) later(site, to uint64) error {
	// Each of those that wait may turn out to have a slot, or to need another one.
	room := t.live+len(t.fresh) < t.full()
	if room {
		t.fresh = append(t.fresh, tableSite{site, to})
	}
	if !room || len(t.fresh) >= togetherMost {
		if err := t.enterFresh(); err != nil {
			return err
		}
	}
	if !room {
		return t.insert(site, to)
	}
	return nil
}

// enterFresh enters the sites that wait. Of those with the same key, the last one holds.
func (t *Table) enterFresh() error {
	order := make([]uint64, len(t.fresh)) // by slot, and then by number
	for i, s := range t.fresh {
		order[i] = uint64(t.slot(s.key))<<32 | uint64(i)
	}
	slices.Sort(order)
	for _, o := range order {
		s := t.fresh[uint32(o)]
		if err := t.insert(s.key, s.value); err != nil {
			return err
		}
	}
	t.fresh = t.fresh[:0]
	return nil
}
