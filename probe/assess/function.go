package assess

import (
	"sync"

	"kprobe/probe/gocode"
	"kprobe/probe/insn"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// Function is a decoded function.
type Function struct {
	Fn    symbols.Func
	Start symbols.Addr
	Size  int    // of code
	Code  []byte // original bytes, from the file; nil: let go
	Sweep *insn.Function
	// golang is what is known of it as code of Go's; nil until it is asked for.
	golang *gocode.Func
}

// Decode decodes a function of a file whose first instruction lies at start.
func Decode(file *symbols.File, fn symbols.Func, start symbols.Addr) (*Function, error) {
	code, sweep, err := survey.Decode(file, fn, start)
	if err != nil {
		return nil, err
	}
	return &Function{Fn: fn, Start: start, Size: len(code), Code: code, Sweep: sweep}, nil
}

// Loaded reports whether a function's instructions are at hand.
func (f *Function) Loaded() bool { return f != nil && f.Sweep != nil }

// Release lets a function's instructions go.
func (f *Function) Release() { f.Code, f.Sweep, f.golang = nil, nil, nil }

// GoCode is what is known of a function of a file that Go's linker made.
func (f *Function) GoCode(p *gocode.Program) *gocode.Func {
	if f.golang == nil {
		f.golang = gocode.Of(p, f.Fn.Start, f.Code, uint64(f.Start), f.Sweep)
	}
	return f.golang
}

// Programs are the files of Go's linker that are looked at. The zero value is ready; it is
// safe for concurrent use.
type Programs struct {
	mu   sync.Mutex
	list map[*symbols.File]*gocode.Program
}

// Of gives what is known of a file, and remembers it.
func (g *Programs) Of(file *symbols.File) *gocode.Program {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.list[file]
	if p == nil {
		if g.list == nil {
			g.list = map[*symbols.File]*gocode.Program{}
		}
		p = gocode.NewProgram(file)
		g.list[file] = p
	}
	return p
}
