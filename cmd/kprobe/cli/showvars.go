package cli

import (
	"fmt"
	"path/filepath"
	"strconv"

	"kprobe/fetch/vars"
	"kprobe/output"
	"kprobe/symbols"
)

// showVars lists the variables at every site of a place. A site of several that
// debug information doesn't know is left out.
func showVars(d *Deps, space *symbols.Space, at symbols.Place, o *showOptions) error {
	sites, err := space.ResolveAhead(at)
	if err != nil {
		return fail(fmt.Errorf("show %s: %w", o.place, err))
	}
	w := output.NewWriter(d.Out)
	var failed error
	shown := 0
	for i := range sites {
		v, err := variablesAt(space, &sites[i], at.Return)
		if err != nil {
			failed = err
			continue
		}
		var out []byte
		if o.form == output.JSON {
			out = output.AppendVariablesJSON(nil, v)
		} else {
			if shown > 0 {
				out = append(out, '\n')
			}
			out = output.VariablesText(out, v)
		}
		shown++
		if _, err := w.Write(out); err != nil {
			return closed(w, err)
		}
	}
	if shown == 0 {
		return closed(w, fmt.Errorf("variables at %s: %w", o.place, failed))
	}
	return closed(w, nil)
}

// variablesAt describes one site; at a return there is the result as well.
func variablesAt(space *symbols.Space, site *symbols.Site, atReturn bool) (*output.Variables, error) {
	scope := vars.At(space, *site)
	describe := scope.Describe
	if atReturn {
		describe = scope.DescribeAtReturn
	}
	list, err := describe()
	if err != nil {
		return nil, err
	}
	if atReturn {
		if result, ok := scope.DescribeResult(); ok {
			list = append(list, result)
		}
		list = append(list, scope.DescribeResults()...)
	}
	v := &output.Variables{Place: site.Name(), Addr: site.Addr, List: list}
	if inlined := site.NamedAs().Inlined; inlined != "" {
		v.Place = inlined + " inlined at " + site.Name()
	}
	if site.Module != nil {
		v.Module = site.Module.Name
	}
	if file, line, ok := space.Source(site.Addr); ok && line > 0 {
		v.Source = filepath.Base(file) + ":" + strconv.Itoa(line)
	}
	return v, nil
}
