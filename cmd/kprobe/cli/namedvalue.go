package cli

import (
	"strings"

	"github.com/spf13/pflag"
)

// namedValue is a flag's value whose type is called by the name that the flag's
// usage has in back quotes. Help and manual pages show the name; completion
// shows the usage as it is, where back quotes would stay. A name that a colon
// follows at the beginning of the usage is no part of it.
type namedValue struct {
	pflag.Value
	name string
}

// Type implements pflag.Value.
func (v *namedValue) Type() string { return v.name }

// nameValues takes the back quotes out of the usages of flags.
func nameValues(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(f.Usage, "`") {
			return
		}
		name, usage := pflag.UnquoteUsage(f)
		usage = strings.TrimPrefix(usage, name+": ")
		f.Value, f.Usage = &namedValue{f.Value, name}, usage
		if f.DefValue == "[]" || f.DefValue == "0s" {
			f.DefValue = "" // none, which pflag knows of its own types alone
		}
	})
}

// valueType is the type of a flag's value, whatever it is called.
func valueType(f *pflag.Flag) string {
	if named, ok := f.Value.(*namedValue); ok {
		return named.Value.Type()
	}
	return f.Value.Type()
}
