package assess

import (
	"slices"
	"sync"

	"kprobe/probe/gocode"
	"kprobe/probe/insn"
	"kprobe/probe/survey"
	"kprobe/symbols"
)

// Function is a decoded function.
type Function struct {
	Fn    *symbols.Func // must not be changed
	Start symbols.Addr
	Size  int    // of code
	Code  []byte // original bytes, from the file; nil: let go
	Sweep *insn.Function
	// golang is what is known of it as code of Go's; nil until it is asked for.
	golang *gocode.Func
	left   *Leaving
}

// Leaving is how a function is left.
type Leaving struct {
	Exits   []insn.Exit
	Closed  bool // these are all
	Returns bool // one of them returns, or may
	// StartsOver says that the function jumps to its own entry.
	StartsOver bool
}

// Decode decodes a function of a file whose first instruction lies at start.
func Decode(file *symbols.File, fn *symbols.Func, start symbols.Addr) (*Function, error) {
	code, sweep, err := survey.Decode(file, fn, start)
	if err != nil {
		return nil, err
	}
	return &Function{Fn: fn, Start: start, Size: len(code), Code: code, Sweep: sweep}, nil
}

// Decoder is for decoding many functions, one after another, in the same memory. The zero value is ready to use.
// It is not safe for concurrent use.
type Decoder struct{ d survey.Decoder }

// Decode is like the function Decode. The function's code and instructions hold until the next call; what Leaving tells
// stays.
func (d *Decoder) Decode(file *symbols.File, fn *symbols.Func, start symbols.Addr) (*Function, error) {
	code, sweep, err := d.d.Decode(file, fn, start)
	if err != nil {
		return nil, err
	}
	return &Function{Fn: fn, Start: start, Size: len(code), Code: code, Sweep: sweep}, nil
}

// Loaded reports whether a function's instructions are at hand.
func (f *Function) Loaded() bool { return f != nil && f.Sweep != nil }

// Leaving tells how the function is left. Once asked for it stays known when the
// instructions are let go; before, they must be at hand.
func (f *Function) Leaving() *Leaving {
	if f.left == nil {
		f.left = leaving(f.Sweep)
	}
	return f.left
}

func leaving(f *insn.Function) *Leaving {
	exits := f.Exits()
	l := &Leaving{Exits: slices.Clip(exits), Closed: f.Closed(), Returns: f.Returns(exits)}
	for t := range f.Targets() {
		l.StartsOver = l.StartsOver || t.To == f.Start() && !t.Call
	}
	return l
}

// KnowsLeaving reports whether Leaving needs no instructions.
func (f *Function) KnowsLeaving() bool { return f != nil && (f.left != nil || f.Sweep != nil) }

// Load gives a function its instructions back, from one that was decoded anew.
func (f *Function) Load(from *Function) {
	if f.Code, f.Sweep, f.Size = from.Code, from.Sweep, from.Size; f.left == nil {
		f.left = from.left
	}
}

// Release lets a function's instructions go.
func (f *Function) Release() {
	if f != nil {
		f.Code, f.Sweep, f.golang = nil, nil, nil
	}
}

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
