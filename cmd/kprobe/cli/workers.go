package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kprobe/internal/plural"
	"kprobe/output"
	"kprobe/probe"
)

// others lists the processes that those of -p have made already, and -p doesn't
// name: workers, which -f doesn't take, as it is about those to come.
func (o *sessionOptions) others(d *Deps) (list []int) {
	for _, pid := range o.pids {
		for _, kid := range d.Proc.Descendants(pid) {
			if !slices.Contains(o.pids, kid) && !slices.Contains(list, kid) && !d.Proc.Own(kid) {
				list = append(list, kid)
			}
		}
	}
	slices.Sort(list)
	return list
}

// mostWorkers is up to how many processes are written out.
const mostWorkers = 32

// taking says how to take processes, too.
func (o *sessionOptions) taking(list []int) string {
	if len(list) > mostWorkers {
		return fmt.Sprintf("pgrep -d, -P %s lists them for -p", o.pids.String())
	}
	words := make([]string, len(list))
	for i, pid := range list {
		words[i] = strconv.Itoa(pid)
	}
	return fmt.Sprintf("-p %s,%s takes them, too", o.pids.String(), strings.Join(words, ","))
}

// of names the processes of -p as what others belong to.
func (o *sessionOptions) of() string {
	if len(o.pids) == 1 {
		return "process " + o.pids.String() + " has"
	}
	return "processes " + o.pids.String() + " have"
}

// warnOthers says with -f which processes it doesn't take.
func (o *sessionOptions) warnOthers(d *Deps, m *messages) {
	if !o.follow || len(o.pids) == 0 {
		return
	}
	if list := o.others(d); len(list) > 0 {
		m.warn("%s %s already, and -f takes those to come; %s", o.of(), plural.Of(len(list), "child", "children"), o.taking(list))
	}
}

// sayOthers says of a trace without hits that there are other processes.
func (o *sessionOptions) sayOthers(d *Deps, m *messages, sum *probe.Summary) {
	if o.follow || len(o.pids) == 0 || len(sum.Alive) == 0 || output.Sum(sum.Stats).Hits > 0 {
		return
	}
	if list := o.others(d); len(list) > 0 {
		m.say("%s %s that -p didn't name; %s", o.of(), plural.Of(len(list), "child", "children"), o.taking(list))
	}
}
