package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// unknownFlag answers a flag that a command doesn't have: with the commands that have it, or
// with flags of similar names.
func unknownFlag(c *cobra.Command, e *pflag.NotExistError) error {
	name, short := e.GetSpecifiedName(), e.GetSpecifiedShortnames()
	var others, near []string
	names := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, other := range c.Root().Commands() {
		if f := flagOf(other, name, short); other.IsAvailableCommand() && f != nil && !f.Hidden {
			others = append(others, other.Name())
		}
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && short == "" {
			names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	for _, f := range names.SuggestionsFor(name) {
		near = append(near, "--"+f)
	}
	flag := dashed(name, short)
	switch {
	case len(near) > 0:
		return misuse("%s has no flag %s; did you mean %s?", c.Name(), flag, strings.Join(near, ", "))
	case len(others) > 0:
		return misuse("%s has no flag %s; a flag of this name belongs to %s", c.Name(), flag, strings.Join(others, ", "))
	}
	return misuse("%s has no flag %s", c.Name(), flag)
}

// flagOf returns a command's flag of a name; short is set if the name has one letter.
func flagOf(c *cobra.Command, name, short string) *pflag.Flag {
	if short != "" {
		return c.Flags().ShorthandLookup(name)
	}
	return c.Flags().Lookup(name)
}

// dashed writes a flag as a user does.
func dashed(name, short string) string {
	if short != "" {
		return "-" + name
	}
	return "--" + name
}
