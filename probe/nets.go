package probe

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/probe/detour"
	"kprobe/probe/tracee"
	"kprobe/symbols"
)

// netCount is how many nets a process gets. The first is chained before the
// action that the program had when kprobe came. A program that sets a handler
// of its own later puts it in the net's place, and may go on to the net from
// there; the next net is put before that handler, and so on: each net leads to
// one action, so that no two lead to each other.
const (
	netCount      = 4
	netStride     = pageSize / netCount
	netDataStride = (detour.NetDataSize + 63) &^ 63
)

// errNets says that the program has changed an action too often.
var errNets = errors.New("no net is left")

// nets are the nets of a process: code in a page of its own, data in another,
// which stay when the program may still call a net after kprobe has left.
// Used on the tracer thread only.
type nets struct {
	proc   *tracee.Process
	code   symbols.Addr
	data   symbols.Addr
	labels [netCount]detour.NetLabels
	// caught has for each signal the action that each net leads to, in the
	// order in which they were laid.
	caught map[syscall.Signal][]detour.Action
	inUse  bool // a thread is in one
}

// lay maps the data's page, lets every net know the table, the count of steps
// and the landings, and returns the page of code.
func (n *nets) lay(ctx context.Context, code symbols.Addr, table, steps, landings symbols.Addr, length uint64) ([]byte, error) {
	at, err := n.proc.Syscall(ctx, nil, unix.SYS_MMAP, 0, pageSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uintptr(0), 0)
	if err != nil {
		return nil, fmt.Errorf("map the net's data: %w", err)
	}
	n.code, n.data = code, symbols.Addr(at)
	n.caught = map[syscall.Signal][]detour.Action{}
	text := n.assemble()
	return text, n.connect(table, steps, landings, length)
}

// assemble makes the page of code and the labels.
func (n *nets) assemble() []byte {
	text := make([]byte, pageSize)
	for i := range text {
		text[i] = breakpoint
	}
	for i := range netCount {
		var blob []byte
		blob, n.labels[i] = detour.Net(uint64(n.code)+uint64(i*netStride), detour.NetParams{Data: uint64(n.data) + uint64(i*netDataStride)})
		copy(text[i*netStride:(i+1)*netStride], blob)
	}
	return text
}

// connect gives the nets what they look at; zeros take it away.
func (n *nets) connect(table, steps, landings symbols.Addr, length uint64) error {
	for i := range netCount {
		w := &netWriter{n.proc, n.data, nil}
		d := detour.NetData{W: w, Off: i * netDataStride}
		d.SetTable(uint64(table))
		d.SetSteps(uint64(steps))
		d.SetLandings(0, uint64(landings), length)
		if w.err != nil {
			return fmt.Errorf("write the net's data: %w", w.err)
		}
	}
	return nil
}

// netWriter is the nets' data as detour wants it.
type netWriter struct {
	proc *tracee.Process
	at   symbols.Addr
	err  error
}

// Put implements detour.Putter.
func (w *netWriter) Put(off int, b []byte) {
	if w.err == nil {
		w.err = w.proc.WriteMemory(b, w.at+symbols.Addr(off))
	}
}

// index says which net's an action is, -1: none's. forced says that the kernel
// has reset it, which it does when a thread that blocks the signal raises it:
// that leaves the restorer (kernel/signal.c, force_sig_info_to_task).
func (n *nets) index(act detour.Action) (i int, forced bool) {
	for i, l := range n.labels {
		switch {
		case act.Handler == l.Handler:
			return i, false
		case act.Handler == 0 && act.Restorer == l.Restorer:
			return i, true
		}
	}
	return -1, false
}

// catch has a net answer a signal, chained before what the program does on it.
// One that the program has replaced since gets the next net in front. t is a
// stopped thread or nil.
func (n *nets) catch(ctx context.Context, t *tracee.Thread, sig syscall.Signal) (changed bool, err error) {
	now, err := n.action(ctx, t, sig)
	if err != nil {
		return false, err
	}
	if i, forced := n.index(now); i >= 0 {
		if !forced || i >= len(n.caught[sig]) {
			return false, nil
		}
		_, err := n.swap(ctx, t, sig, n.labels[i].Action(n.caught[sig][i]))
		return true, err
	}
	i, err := n.lead(sig, now)
	if err != nil {
		return false, err
	}
	old, err := n.swap(ctx, t, sig, n.labels[i].Action(now))
	if err != nil || old == now {
		return true, err
	}
	// The program has set another one in between.
	if j, forced := n.index(old); j >= 0 && !forced {
		_, err = n.swap(ctx, t, sig, old)
		return true, err
	}
	n.caught[sig][i] = old
	return true, n.tell(i, sig, old)
}

// lead finds a net for an action: the one that leads there, or an unused one.
func (n *nets) lead(sig syscall.Signal, to detour.Action) (int, error) {
	list := n.caught[sig]
	for i := range list {
		if list[i] == to {
			return i, nil
		}
	}
	i := len(list)
	if i == netCount {
		return 0, errNets
	}
	n.caught[sig] = append(list, to)
	return i, n.tell(i, sig, to)
}

// tell writes what net i leads to on a signal.
func (n *nets) tell(i int, sig syscall.Signal, act detour.Action) error {
	set := uint64(0)
	for s, list := range n.caught {
		if i < len(list) {
			set |= 1 << s
		}
	}
	w := &netWriter{n.proc, n.data, nil}
	d := detour.NetData{W: w, Off: i * netDataStride}
	d.SetAction(int(sig), act)
	d.SetCaught(set)
	return w.err
}

// remove gives the program its actions back. It reports whether a net's code
// may still be called: a handler that the program has put over the net may go
// on to it.
func (n *nets) remove(ctx context.Context) (chained bool, err error) {
	var errs []error
	chained = n.inUse
	for sig, list := range n.caught {
		now, err := n.action(ctx, nil, sig)
		if err != nil {
			errs = append(errs, err)
			chained = true
			continue
		}
		i, forced := n.index(now)
		switch {
		case i < 0 || i >= len(list):
			// SIG_DFL and SIG_IGN call nobody.
			chained = chained || now.Handler > 1 || len(list) > 1
			continue
		case forced:
			// Nothing leads to the net any more, nor to what the program had.
		case len(list) > 1:
			chained = true
		}
		back, err := n.leadsTo(i, sig)
		if err == nil {
			_, err = n.swap(ctx, nil, sig, back)
		}
		if err != nil {
			errs = append(errs, err)
			chained = true
		}
	}
	return chained, errors.Join(errs...)
}

// look notes where a thread is that is about to be left.
func (n *nets) look(pc symbols.Addr) {
	n.inUse = n.inUse || n.code != 0 && pc >= n.code && pc < n.code+pageSize
}

// find reads what the nets that a killed kprobe laid lead to.
func (n *nets) find(code, data symbols.Addr) error {
	n.code, n.data = code, data
	n.caught = map[syscall.Signal][]detour.Action{}
	n.assemble()
	b := make([]byte, netCount*netDataStride)
	if _, err := n.proc.ReadMemory(b, data); err != nil {
		return fmt.Errorf("read the net's data: %w", err)
	}
	for _, s := range detour.NetSignals() {
		used := 0
		for i := range netCount {
			if detour.NetCaught(b[i*netDataStride:])&(1<<s) != 0 {
				used = i + 1
			}
		}
		for i := range used {
			sig := syscall.Signal(s)
			n.caught[sig] = append(n.caught[sig], detour.NetAction(b[i*netDataStride:], s))
		}
	}
	return nil
}

// leadsTo reads what net i leads to: SA_RESETHAND may have changed it.
func (n *nets) leadsTo(i int, sig syscall.Signal) (detour.Action, error) {
	b := make([]byte, detour.NetDataSize)
	if _, err := n.proc.ReadMemory(b, n.data+symbols.Addr(i*netDataStride)); err != nil {
		return detour.Action{}, fmt.Errorf("read the net's data: %w", err)
	}
	return detour.NetAction(b, int(sig)), nil
}

func (n *nets) action(ctx context.Context, t *tracee.Thread, sig syscall.Signal) (detour.Action, error) {
	act, err := n.proc.Sigaction(ctx, t, sig)
	return netAction(act), err
}

func (n *nets) swap(ctx context.Context, t *tracee.Thread, sig syscall.Signal, act detour.Action) (detour.Action, error) {
	old, err := n.proc.SwapSigaction(ctx, t, sig, tracee.Sigaction{
		Handler: symbols.Addr(act.Handler), Flags: act.Flags, Restorer: symbols.Addr(act.Restorer), Mask: act.Mask,
	})
	return netAction(old), err
}

func netAction(a tracee.Sigaction) detour.Action {
	return detour.Action{Handler: uint64(a.Handler), Flags: a.Flags, Restorer: uint64(a.Restorer), Mask: a.Mask}
}
