package fetch

import "slices"

// Set holds definitions together, in the order they came. The zero Set is
// empty. It is not safe for concurrent use.
type Set struct {
	defs []*Def
}

// Add takes in one definition, or carries out a Delete. A definition of an
// event that is there adds a place to it and must have its shape (see
// SameShape). Errors are *SyntaxError, and the set is then as it was: also
// NO_EVENT for a Delete that matches nothing.
func (s *Set) Add(d *Def) error {
	if d.Kind == Delete {
		return s.remove(d)
	}
	for _, o := range s.defs {
		if o.Event != d.Event || o.Group != d.Group {
			continue
		}
		if err := o.SameShape(d); err != nil {
			return err
		}
	}
	s.defs = append(s.defs, d)
	return nil
}

// AddAll adds all of them or none.
func (s *Set) AddAll(defs []*Def) error {
	was := slices.Clone(s.defs)
	for _, d := range defs {
		if err := s.Add(d); err != nil {
			s.defs = was
			return err
		}
	}
	return nil
}

func (s *Set) remove(d *Def) error {
	left := slices.DeleteFunc(slices.Clone(s.defs), d.Deletes)
	if len(left) == len(s.defs) {
		return newError(NoSuchEvent, d.Text, 0, "")
	}
	s.defs = left
	return nil
}

// All lists the definitions. The slice is the caller's.
func (s *Set) All() []*Def { return slices.Clone(s.defs) }

// Len is the number of definitions.
func (s *Set) Len() int { return len(s.defs) }

// Event lists the definitions of one event: its places.
func (s *Set) Event(group, event string) []*Def {
	var out []*Def
	for _, d := range s.defs {
		if d.Group == group && d.Event == event {
			out = append(out, d)
		}
	}
	return out
}
