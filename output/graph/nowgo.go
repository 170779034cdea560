package graph

import (
	"fmt"
	"strconv"
	"strings"

	"kprobe/internal/plural"
	"kprobe/internal/quote"
	"kprobe/probe/results"
)

// goroutines writes what the goroutines are inside of that no thread runs. Those with
// the same calls stand together.
func goroutines(b []byte, p *results.Inside, mono uint64, lines bool) []byte {
	if p.GoError != nil {
		b = fmt.Appendf(b, "\n# %v\n", p.GoError)
	}
	groups := map[string][]*results.Goroutine{}
	var order []string
	for _, g := range p.Goroutines {
		var key strings.Builder
		key.WriteString(g.Status + g.Reason)
		for i := range g.Frames {
			f := &g.Frames[i]
			fmt.Fprintf(&key, " %x", f.Addr)
			if f.Open != nil {
				fmt.Fprintf(&key, " %d", g.ID)
			}
		}
		k := key.String()
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], g)
	}
	for _, k := range order {
		list := groups[k]
		b = append(b, "\n# "...)
		if len(list) == 1 {
			b = append(b, "goroutine "...)
		} else {
			b = fmt.Appendf(b, "%d goroutines: ", len(list))
		}
		for i, g := range list[:min(len(list), maxNames)] {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = strconv.AppendUint(b, g.ID, 10)
		}
		if n := len(list) - maxNames; n > 0 {
			b = fmt.Appendf(b, " and %d more", n)
		}
		b = goHead(b, list, mono)
		at := &place{b: b, cpu: "-", task: "g-" + strconv.FormatUint(list[0].ID, 10), mono: mono, lines: lines}
		at.frames(list[0].Frames, list[0].End)
		b = at.b
	}
	if p.GoOwn > 0 {
		b = fmt.Appendf(b, "\n# %s of the runtime itself wait besides\n", plural.Of(p.GoOwn, "goroutine", "goroutines"))
	}
	if p.GoMore > 0 {
		b = fmt.Appendf(b, "# %s more aren't shown\n", plural.Of(p.GoMore, "goroutine", "goroutines"))
	}
	return b
}

// goHead says what goroutines wait for, and for how long at least.
func goHead(b []byte, list []*results.Goroutine, mono uint64) []byte {
	g := list[0]
	status := g.Status
	if len(list) > 1 {
		status = map[string]string{"waits": "wait"}[g.Status]
		if status == "" {
			status = g.Status
		}
	}
	b = append(append(b, ": "...), status...)
	if g.Reason != "" {
		b = append(quote.AppendPlain(append(b, " ("...), g.Reason), ')')
	}
	longest := uint64(0)
	for _, g := range list {
		if g.Since > 0 && g.Since < mono {
			longest = max(longest, mono-g.Since)
		}
	}
	if longest > 0 {
		b = append(append(b, ", at least "...), seconds(longest)...)
	}
	return append(b, '\n')
}
