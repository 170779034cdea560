package cli

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"kprobe/fetch"
	"kprobe/probe"
)

// controlOptions say what is done at hits besides recording them.
type controlOptions struct {
	limit    uint32        // hits of an event in a second; 0: all
	expire   time.Duration // 0: never
	triggers triggerList
}

// addControl adds the flags of commands whose hits are recorded.
func (o *controlOptions) addControl(f *pflag.FlagSet) {
	f.Var((*limitValue)(&o.limit), "limit", "`N/s`: record at most N hits of each event in a second; count the others")
	o.addSwitches(f)
}

// addSwitches adds those of commands that count, too.
func (o *controlOptions) addSwitches(f *pflag.FlagSet) {
	f.DurationVar(&o.expire, "expire", 0, "switch the probes off after `TIME`, even if kprobe has gone")
	f.Var(&o.triggers, "trigger", "`EVENT:ACTION[:N]`: perform ACTION at hits of EVENT, N times at most; if FILTER may follow (repeat)")
}

// checkControl refuses what makes no sense.
func (o *controlOptions) checkControl(c *cobra.Command) error {
	if c.Flags().Changed("expire") && o.expire <= 0 {
		return misuse("--expire %v: give a time above 0", o.expire)
	}
	return nil
}

// controls reports whether there is any.
func (o *controlOptions) controls() bool {
	return o.limit > 0 || o.expire > 0 || len(o.triggers) > 0
}

// control puts the options into those of a session.
func (o *controlOptions) control(p *probe.Options) {
	p.Limit, p.Expire, p.Triggers = o.limit, o.expire, o.triggers
}

// limitValue is the value of --limit: N/s.
type limitValue uint32

// mostLimit is the most that a bucket counts to.
const mostLimit = 1<<31 - 1

// Set implements pflag.Value.
func (l *limitValue) Set(s string) error {
	n, err := strconv.ParseUint(strings.TrimSuffix(s, "/s"), 10, 32)
	if err != nil || n == 0 || n > mostLimit {
		return errors.New("give how many hits a second, such as 100/s")
	}
	*l = limitValue(n)
	return nil
}

// Type implements pflag.Value.
func (l *limitValue) Type() string { return "N/s" }

// String implements pflag.Value.
func (l *limitValue) String() string {
	if *l == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(*l), 10) + "/s"
}

// triggerList is the value of --trigger, each time one.
type triggerList []*fetch.Trigger

// Set implements pflag.Value.
func (l *triggerList) Set(s string) error {
	t, err := fetch.ParseTrigger(s)
	if err != nil {
		return err
	}
	*l = append(*l, t)
	return nil
}

// Type implements pflag.Value.
func (l *triggerList) Type() string { return "TRIGGER" }

// String implements pflag.Value.
func (l *triggerList) String() string {
	var words []string
	for _, t := range *l {
		words = append(words, t.Text)
	}
	return strings.Join(words, ", ")
}
