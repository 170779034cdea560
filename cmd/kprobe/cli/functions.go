package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"kprobe/fetch"
	"kprobe/internal/quote"
	"kprobe/output"
	"kprobe/symbols"
)

type functionsOptions struct {
	where
	glob  string
	raw   bool
	files bool
	usdt  bool
	form  output.Form
}

const functionsLong = `Lists the functions that can be probed, one name per line, in a form that every
definition accepts. With -x it lists those of a file, with -p those of all files
that the process has mapped, as MOD:NAME.

Names of C++ and Rust are demangled, and in double quotes if they have a blank.
--no-demangle lists them as they are in the file. GLOB is a shell pattern for
either form; demangled names match without their parameters too. If GLOB is a
listed name, or one with @FILE.c after it, it stands for that name even if it
contains *, ? or [.

--files adds a tab and FILE:LINE: where the function's code begins. That is a
place too. It needs debug information, or the table of Go's runtime.

# USDT PROBES
--usdt lists statically defined probes (sys/sdt.h) instead, one place per line:
the address as definitions take it, %PROVIDER:NAME, the arguments as the
compiler noted them (8@%rdi is 8 bytes in %rdi), and the semaphore, if there is
one. The program may skip the place while its semaphore is 0.

GLOB is then NAME or [MOD:]%PROVIDER:NAME. In a definition, that stands for all
places of the name. Their arguments are $arg1 and so on, and the semaphore is
raised.`

const functionsExample = `  kprobe functions -x /bin/bash 'read*'
  kprobe functions -p 4711 'str*'
  kprobe functions -p 4711 'libc:*open*'
  kprobe functions -x ./server 'ns::Server::*'
  kprobe functions --files -x ./server 'handle_*'
  kprobe functions --usdt -p 4711 '%postgresql:*'`

type functionsRun func(ctx context.Context, d *Deps, m *messages, o *functionsOptions) error

func newFunctionsCmd(d *Deps, m *messages, run functionsRun) *cobra.Command {
	o := &functionsOptions{}
	c := &cobra.Command{
		Use:     "functions [-x FILE | -p PID] [GLOB]",
		Short:   "list functions and USDT probes",
		Long:    functionsLong,
		Example: functionsExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return misuse("give one pattern; a shell expands one that is not in quotes")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			o.glob = "*"
			if len(args) == 1 {
				o.glob = args[0]
			}
			if err := o.check(); err != nil {
				return err
			}
			if o.usdt && (o.raw || o.files) {
				return misuse("--usdt lists probes, not functions: it goes with neither --files nor --no-demangle")
			}
			return run(c.Context(), d, m, o)
		},
	}
	o.register(c, d)
	c.Flags().BoolVar(&o.raw, "no-demangle", false, "list names as they are in the file")
	c.Flags().BoolVar(&o.files, "files", false, "list the source file and line of each function")
	c.Flags().BoolVar(&o.usdt, "usdt", false, "list USDT probes (sys/sdt.h) instead")
	addFormat(c.Flags(), &o.form)
	return c
}

func runFunctions(ctx context.Context, d *Deps, m *messages, o *functionsOptions) error {
	if o.usdt {
		return runUSDT(d, m, o)
	}
	module, glob := fetch.CutModule(unquoted(o.glob))
	space, err := o.open(o.cache(d), module)
	if o.files {
		space, err = o.find(ctx, d, symbols.Place{Module: module, Symbol: "*"}, true)
	}
	if err != nil {
		return err
	}
	modules, err := o.modulesOf(space, module)
	if err != nil {
		return err
	}
	w := output.NewWriter(d.Out)
	found := 0
	for _, mod := range modules {
		n, err := writeFunctions(w, space, mod, glob, o)
		if err != nil {
			return closed(w, err)
		}
		found += n
	}
	if err := closed(w, nil); err != nil {
		return err
	}
	if found == 0 {
		m.say("no function matches %s", glob)
		return statusError(ExitFailure)
	}
	return nil
}

// modulesOf gives the modules of a space that module names; "" is all.
func (o *functionsOptions) modulesOf(space *symbols.Space, module string) ([]*symbols.Module, error) {
	if module == "" || len(o.pids) == 0 {
		return space.Modules(), nil
	}
	list := space.FindModules(module)
	if len(list) == 0 {
		return nil, fail(fmt.Errorf("process %d has not mapped %s: %w", o.pids[0], module, symbols.ErrNotMapped))
	}
	return list, nil
}

// unquoted takes off the double quotes in which a definition wants a name.
func unquoted(s string) string {
	if d, err := fetch.Parse("p " + s); err == nil && len(s) > 1 && s[0] == '"' && len(d.Args) == 0 {
		return d.Place.String()
	}
	return s
}

// listed is a function with the name that it is printed under.
type listed struct {
	symbols.Func
	place symbols.Place
	name  string // its place, without quotes
}

// list finds the functions of a module whose names match, by name.
func (o *functionsOptions) list(mod *symbols.Module, glob string) []listed {
	some := mod.File.Functions(glob)
	if len(some) == 0 {
		return nil
	}
	names := mod.File.PlaceNames(o.raw, func(p symbols.Place) bool {
		_, ok := fetch.PlaceText(p)
		return ok
	})
	out := make([]listed, len(some))
	for i, fn := range some {
		p := names.Of(&fn.Symbol)
		out[i] = listed{fn, p, p.String()}
	}
	slices.SortFunc(out, func(a, b listed) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.Start, b.Start))
	})
	return out
}

// writeFunctions prints the functions of a module whose names match.
func writeFunctions(w *output.Writer, space *symbols.Space, mod *symbols.Module, glob string, o *functionsOptions) (int, error) {
	list := o.list(mod, glob)
	var line []byte
	for i := range list {
		fn := &list[i]
		line = line[:0]
		source := ""
		if o.files {
			source = ownSource(space, mod.Addr(fn.Start))
		}
		name := fn.name
		if len(o.pids) > 0 || fn.place.Kind == symbols.PlaceVaddr {
			fn.place.Module = mod.Name // an address alone would be one of the process
			name = fn.place.String()
		}
		if text, ok := fetch.PlaceText(fn.place); ok {
			name = text
		}
		if o.form == output.JSON {
			f := output.Function{Module: mod.Name, Name: fn.name, Vaddr: fn.Start, Size: fn.Size(), Source: source}
			if fn.Symbol.Name != fn.name {
				f.Symbol = fn.Symbol.Name
			}
			if len(o.pids) > 0 {
				f.Addr = mod.Addr(fn.Start)
			}
			line = output.AppendFunctionJSON(line, &f)
		} else {
			line = appendNamed(line, name, source)
		}
		if _, err := w.Write(line); err != nil {
			return i, err
		}
	}
	return len(list), nil
}

// ownSource is where a function's own code begins, whatever is inlined at its
// start.
func ownSource(space *symbols.Space, at symbols.Addr) string {
	frames := space.Frames(at)
	file, line := "", 0
	switch len(frames) {
	case 0:
		return ""
	case 1:
		file, line = frames[0].File, frames[0].Line
	default:
		sites, err := space.Resolve(symbols.Place{Kind: symbols.PlaceAddr, Value: uint64(at)})
		if err != nil {
			return ""
		}
		lines, _, _, err := space.Lines(sites[0])
		if err != nil || len(lines) == 0 {
			return ""
		}
		first := slices.MinFunc(lines, func(x, y symbols.LineCode) int { return cmp.Compare(x.Addr, y.Addr) })
		file, line = first.File, first.Line
	}
	if file == "" || line <= 0 {
		return ""
	}
	return file + ":" + strconv.Itoa(line)
}

func appendNamed(dst []byte, name, source string) []byte {
	dst = quote.AppendPlain(dst, name)
	if source != "" {
		dst = quote.AppendPlain(append(dst, '\t'), source)
	}
	return append(dst, '\n')
}

// functionNames gives each function the shortest name that means only it:
// NAME, NAME@FILE.c for one of several statics, 0xVADDR where that is not
// enough.
func functionNames(funcs []symbols.Func) []string {
	count := make(map[string]int, len(funcs))
	for i := range funcs {
		count[funcs[i].Symbol.Name]++
	}
	inFile := map[string]int{}
	long := func(s *symbols.Symbol) string { return s.Name + "@" + path.Base(s.File) }
	for i := range funcs {
		if s := &funcs[i].Symbol; count[s.Name] > 1 {
			inFile[long(s)]++
		}
	}
	names := make([]string, len(funcs))
	for i := range funcs {
		s := &funcs[i].Symbol
		switch {
		case count[s.Name] == 1:
			names[i] = s.Name
		case s.File != "" && inFile[long(s)] == 1:
			names[i] = long(s)
		default:
			names[i] = funcs[i].Start.String()
		}
	}
	return names
}

// closed ends the output of a command: a reader that has gone is no failure.
func closed(w *output.Writer, err error) error {
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	if err == nil || errors.Is(err, output.ErrClosed) {
		return nil
	}
	return fail(err)
}
