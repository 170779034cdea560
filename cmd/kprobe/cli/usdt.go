package cli

import (
	"cmp"
	"slices"
	"strings"

	"kprobe/fetch"
	"kprobe/internal/quote"
	"kprobe/output"
	"kprobe/symbols"
	"kprobe/symbols/glob"
)

// cutUSDT takes apart [MOD:][%]PATTERN. The pattern is of PROVIDER:NAME, or where
// it has no colon of NAME.
func cutUSDT(word string) (module, pattern string) {
	if before, after, ok := strings.Cut(word, "%"); ok {
		return strings.TrimSuffix(before, ":"), after
	}
	return "", word
}

// runUSDT lists the statically defined probes of files.
func runUSDT(d *Deps, m *messages, o *functionsOptions) error {
	module, pattern := cutUSDT(o.glob)
	space, err := o.open(o.cache(d), module)
	if err != nil {
		return err
	}
	modules, err := o.modulesOf(space, module)
	if err != nil {
		return err
	}
	w := output.NewWriter(d.Out)
	found := 0
	var line []byte
	for _, mod := range modules {
		for _, u := range usdtOf(mod, pattern) {
			found++
			line = appendUSDT(line[:0], mod, &u, o)
			if _, err := w.Write(line); err != nil {
				return closed(w, err)
			}
		}
	}
	if err := closed(w, nil); err != nil {
		return err
	}
	if found == 0 {
		m.say("no statically defined probe matches %s", pattern)
		return statusError(ExitFailure)
	}
	return nil
}

// usdtOf are the probes of a module that a pattern matches, by name and address.
func usdtOf(mod *symbols.Module, pattern string) []symbols.USDT {
	list := slices.DeleteFunc(mod.File.USDT(), func(u symbols.USDT) bool {
		name := u.Name
		if strings.Contains(pattern, ":") {
			name = u.Provider + ":" + name
		}
		return !glob.Match(pattern, name, "!^")
	})
	slices.SortFunc(list, func(a, b symbols.USDT) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Vaddr, b.Vaddr))
	})
	return list
}

// appendUSDT appends a probe: a place that definitions take, its name, and its
// arguments and semaphore where it has any.
func appendUSDT(dst []byte, mod *symbols.Module, u *symbols.USDT, o *functionsOptions) []byte {
	place := symbols.Place{Kind: symbols.PlaceVaddr, Module: mod.Name, Value: uint64(u.Vaddr)}
	name := place.String()
	if text, ok := fetch.PlaceText(place); ok {
		name = text
	}
	if o.form == output.JSON {
		j := output.USDT{Module: mod.Name, Place: name, USDT: *u}
		if len(o.pids) > 0 {
			j.Addr = mod.Addr(u.Vaddr)
		}
		return output.AppendUSDTJSON(dst, &j)
	}
	dst = quote.AppendPlain(dst, name)
	dst = quote.AppendPlain(append(dst, '\t'), "%"+u.Provider+":"+u.Name)
	if u.Args != "" {
		dst = quote.AppendPlain(append(dst, '\t'), u.Args)
	}
	if u.Semaphore != 0 {
		dst = append(append(dst, "\tsemaphore "...), u.Semaphore.String()...)
	}
	return append(dst, '\n')
}

// probesWith gives the statically defined probes whose names begin with a word, behind
// what the place has before them.
func probesWith(files []*symbols.File, prefix, word string) (out []string) {
	for _, f := range files {
		for _, u := range f.USDT() {
			if name := u.String(); strings.HasPrefix(name, word) && typable(name) {
				out = append(out, prefix+name)
			}
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), maxCompletions)]
}
