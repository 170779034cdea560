package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kprobe/fetch"
	"kprobe/output"
)

// pidList is the value of -p: repeated, or a list with commas, blanks or line
// feeds, as pgrep prints it.
type pidList []int

// pidError says that a word is no process ID.
func pidError(word string) error {
	if strings.Trim(word, "-0123456789") == "" {
		return fmt.Errorf("%s is not a process ID", word)
	}
	return fmt.Errorf("%q is not a process ID; by name: -p \"$(pgrep -d, -x %s)\"", word, word)
}

// Set implements pflag.Value.
func (l *pidList) Set(s string) error {
	words := strings.FieldsFunc(s, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	if len(words) == 0 {
		return errors.New("no process is named")
	}
	for _, word := range words {
		pid, err := strconv.Atoi(word)
		if err != nil || pid <= 0 {
			return pidError(word)
		}
		if !slices.Contains(*l, pid) {
			*l = append(*l, pid)
		}
	}
	return nil
}

// Type implements pflag.Value.
func (l *pidList) Type() string { return "PID" }

// String implements pflag.Value.
func (l *pidList) String() string {
	words := make([]string, len(*l))
	for i, pid := range *l {
		words[i] = strconv.Itoa(pid)
	}
	return strings.Join(words, ",")
}

// formValue is the value of --format.
type formValue output.Form

// Set implements pflag.Value.
func (f *formValue) Set(s string) error {
	switch s {
	case "text":
		*f = formValue(output.Text)
	case "json":
		*f = formValue(output.JSON)
	default:
		return fmt.Errorf("%q is neither text nor json", s)
	}
	return nil
}

// Type implements pflag.Value.
func (f *formValue) Type() string { return "text|json" }

// String implements pflag.Value.
func (f *formValue) String() string {
	if output.Form(*f) == output.JSON {
		return "json"
	}
	return "text"
}

// addFormat registers --format and, as its short form, --json.
func addFormat(flags *pflag.FlagSet, form *output.Form) {
	flags.Var((*formValue)(form), "format", "print text, or json: one object per line")
	flags.VarPF((*jsonSwitch)(form), "json", "", "short for --format json").NoOptDefVal = "true"
}

// jsonSwitch is the value of --json.
type jsonSwitch output.Form

// Set implements pflag.Value.
func (f *jsonSwitch) Set(s string) error {
	on, err := strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", s)
	}
	*f = jsonSwitch(output.Text)
	if on {
		*f = jsonSwitch(output.JSON)
	}
	return nil
}

// Type implements pflag.Value.
func (f *jsonSwitch) Type() string { return "bool" }

// String implements pflag.Value.
func (f *jsonSwitch) String() string { return strconv.FormatBool(output.Form(*f) == output.JSON) }

// where is the file or the process whose code a command looks at.
type where struct {
	pids pidList
	exec string
	servers
}

func (w *where) register(c *cobra.Command, d *Deps) {
	c.Flags().VarP(&w.pids, "pid", "p", "look in the files that this process has mapped")
	c.Flags().StringVarP(&w.exec, "exec", "x", "", "look in `FILE`, a program or a library")
	w.servers.register(c.Flags())
	completeWhere(c, d)
}

// check refuses more than one of file and process.
func (w *where) check() error {
	switch {
	case len(w.pids) > 1:
		return misuse("-p takes one process here")
	case len(w.pids) == 1 && w.exec != "":
		return misuse("-p and -x cannot be used together")
	}
	return nil
}

// flagError says what is wrong with a flag, without the names of the functions
// that found it out.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		return unknownFlag(c, unknown)
	}
	var empty *pflag.ValueRequiredError
	if errors.As(err, &empty) {
		name, value := dashed(empty.GetSpecifiedName(), empty.GetSpecifiedShortnames()), empty.GetFlag().Value.Type()
		return misuse("%s needs a value: %s %s", name, name, strings.ToUpper(value))
	}
	var num *strconv.NumError
	var bad *pflag.InvalidValueError
	var syntax *fetch.SyntaxError
	if !errors.As(err, &bad) {
		return err
	}
	why := bad.Unwrap().Error()
	switch {
	case errors.As(err, &syntax):
		return fail(syntax)
	case errors.As(err, &num) && errors.Is(num, strconv.ErrRange):
		why = "it is too large"
	case errors.As(err, &num) && negative(bad.GetValue()):
		why = "it is less than 0"
	case errors.As(err, &num):
		why = "it is not a number"
	case valueType(bad.GetFlag()) == "duration":
		return misuse("invalid %s %q: %s", bad.GetFlag().Name, bad.GetValue(), durationHint(bad.GetValue()))
	case valueType(bad.GetFlag()) == "PID":
		return misuse("--%s: %s", bad.GetFlag().Name, why)
	}
	return misuse("--%s %q: %s", bad.GetFlag().Name, bad.GetValue(), why)
}

// negative reports whether a word is a number below 0.
func negative(s string) bool {
	n, err := strconv.ParseInt(s, 0, 64)
	return err == nil && n < 0
}

// durationHint says how a time is written.
func durationHint(s string) string {
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return "give a unit, for example " + s + "s or " + s + "ms"
	}
	return "a time is a number and a unit, for example 10s, 500ms or 1m30s"
}
