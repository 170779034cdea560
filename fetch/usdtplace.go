package fetch

import (
	"strings"

	"kprobe/symbols"
)

// cutUSDT takes [MOD:]%PROVIDER:NAME apart. What has no colon behind the % is
// another place, or none.
func cutUSDT(s string) (p symbols.Place, ok bool) {
	module, name := "", s
	if !strings.HasPrefix(s, "%") {
		if module, name, ok = strings.Cut(s, ":%"); !ok || module == "" {
			return p, false
		}
		name = "%" + name
	}
	p = symbols.Place{Kind: symbols.PlaceUSDT, Module: module}
	if p.Provider, p.Symbol, ok = strings.Cut(name[1:], ":"); !ok || p.Provider == "" || p.Symbol == "" {
		return p, false
	}
	return p, !strings.ContainsFunc(p.Provider+p.Symbol, notInUSDTName)
}

// notInUSDTName reports what is in no name of a provider or a probe, nor in a shell
// pattern of one.
func notInUSDTName(r rune) bool { return r < 0x80 && strings.ContainsRune(` %:/"'()+=`, r) }

// isUSDT reports a definition of a statically defined probe.
func (d *Def) isUSDT() bool { return d.Place.Kind == symbols.PlaceUSDT }

// noted asks for $argN of a statically defined probe, which its note tells.
func (c *compiler) noted(x *Expr) (Variable, *SyntaxError) {
	d, is := c.env.(DebugEnv)
	if !is || x.Op != ExprArg {
		return Variable{}, newError(NoFentryArgs, c.d.Text, x.col, "a statically defined probe has the arguments of its note: $arg1 and so on")
	}
	v, err := d.Argument(x.N)
	if err != nil {
		return v, c.err(NoBTFArg, x.col, err)
	}
	return v, nil
}
