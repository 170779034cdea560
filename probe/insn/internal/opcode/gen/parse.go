package main

import (
	"fmt"
	"strconv"
	"strings"

	op "kprobe/probe/insn/internal/opcode"
)

// table is what opcodes.table says: its maps in order, and the groups that
// their entries refer to.
type table struct {
	names  []string
	maps   map[string]*[256]op.Attr
	groups [][op.GroupSize]op.Attr
}

func parse(text string) (*table, error) {
	t := &table{maps: map[string]*[256]op.Attr{}}
	var cur *[256]op.Attr
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if line[0] == '[' {
			name := strings.Trim(line, "[]")
			cur = new([256]op.Attr)
			t.names, t.maps[name] = append(t.names, name), cur
			continue
		}
		f := strings.Fields(line)
		if cur == nil {
			return nil, fmt.Errorf("line %d: before the first map", n+1)
		}
		if err := t.row(cur, f[0], f[1:]); err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
	}
	return t, nil
}

func (t *table) row(m *[256]op.Attr, key string, tokens []string) error {
	a, err := attr(tokens)
	if err != nil {
		return err
	}
	if i := strings.IndexAny(key, "/!"); i >= 0 {
		opcode, err := strconv.ParseUint(key[:i], 16, 8)
		if err != nil {
			return fmt.Errorf("opcode %q: %w", key[:i], err)
		}
		g, err := t.group(&m[opcode])
		if err != nil {
			return err
		}
		if key[i] == '!' {
			return exact(g, key[i+1:], a)
		}
		return regs(g, key[i+1:], a)
	}
	list, err := numbers(key, 16)
	if err != nil {
		return err
	}
	for _, b := range list {
		m[b] = a
	}
	return nil
}

// group returns the group of an entry, which it makes if there is none.
func (t *table) group(a *op.Attr) (*[op.GroupSize]op.Attr, error) {
	if *a == 0 {
		if len(t.groups) > 63 {
			return nil, fmt.Errorf("more than 64 groups")
		}
		*a = (op.ModRM | op.PPAll).WithGroup(len(t.groups))
		t.groups = append(t.groups, [op.GroupSize]op.Attr{})
	}
	if *a&op.Group == 0 {
		return nil, fmt.Errorf("a row of a group after a row without")
	}
	return &t.groups[a.GroupIndex()], nil
}

// regs fills the forms of a list such as 0,2-4m.
func regs(g *[op.GroupSize]op.Attr, list string, a op.Attr) error {
	mem, reg := a&op.EMem != 0, a&op.EReg != 0
	switch {
	case strings.HasSuffix(list, "m"):
		reg = false
	case strings.HasSuffix(list, "r"):
		mem = false
	}
	rs, err := numbers(strings.TrimRight(list, "mr"), 8)
	if err != nil {
		return err
	}
	for _, r := range rs {
		if mem {
			g[r] = a
		}
		for rm := 0; reg && rm < 8; rm++ {
			g[8+r*8+rm] = a
		}
	}
	return nil
}

// exact fills the register forms of exact ModRM bytes.
func exact(g *[op.GroupSize]op.Attr, list string, a op.Attr) error {
	bs, err := numbers(list, 16)
	if err != nil {
		return err
	}
	for _, b := range bs {
		if b < 0xc0 {
			return fmt.Errorf("ModRM %#x is no register form", b)
		}
		g[8+b&0x3f] = a
	}
	return nil
}

// numbers reads a list such as 01,08-0F.
func numbers(list string, base int) ([]int, error) {
	var out []int
	for _, part := range strings.Split(list, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		a, err := strconv.ParseUint(lo, base, 8)
		if err != nil {
			return nil, fmt.Errorf("number %q: %w", part, err)
		}
		b := a
		if isRange {
			if b, err = strconv.ParseUint(hi, base, 8); err != nil {
				return nil, fmt.Errorf("range %q: %w", part, err)
			}
		}
		for ; a <= b; a++ {
			out = append(out, int(a))
		}
	}
	return out, nil
}
