package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"kprobe/internal/plural"
	"kprobe/internal/procfs"
	"kprobe/probe"
	"kprobe/symbols/glob"
)

// maxNamed bounds the files in PATH that --name takes for those that processes of the
// name will execute.
const maxNamed = 64

// waitFor makes what a session is told of the processes that it is to wait for: those that is
// says yes to.
func (o *sessionOptions) waitFor(d *Deps, m *messages, p *probe.Options) {
	if !o.wait {
		return
	}
	fs, is := procfs.FS(d.Proc.Root), o.is
	w := &probe.Wait{Names: o.name != "", Is: func(pid int) bool { return !d.Proc.Own(pid) && is(fs.Process(pid)) }}
	if o.name != "" {
		w.Files = o.namedFiles(d)
	} else {
		w.Files = []string{o.defs.exec}
	}
	w.Begun = func(files, others probe.StartMeans) {
		if !o.quiet {
			m.say("%s", o.waitingLine(len(w.Files), files, others))
		}
	}
	p.Wait = w
	// What is wrong in each of thousands of processes is said once.
	p.Log = slog.New(&onceLog{Handler: p.Log.Handler(), said: map[string]bool{}})
}

// onceLog says each message once.
type onceLog struct {
	slog.Handler
	mu   sync.Mutex
	said map[string]bool
}

// maxSaid bounds how many messages are remembered.
const maxSaid = 1000

// Handle implements slog.Handler.
func (l *onceLog) Handle(ctx context.Context, r slog.Record) error {
	l.mu.Lock()
	again := l.said[r.Message]
	if len(l.said) < maxSaid {
		l.said[r.Message] = true
	}
	l.mu.Unlock()
	if again {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

// waitingLine says what is waited for, and what is missed of it.
func (o *sessionOptions) waitingLine(named int, files, others probe.StartMeans) string {
	what := "processes that run " + o.defs.exec
	if o.name != "" {
		what = "processes named " + o.name
	}
	late := map[probe.StartMeans]string{
		probe.StartNews:  "are taken when they have begun: what they do until they are attached to is missed",
		probe.StartLooks: fmt.Sprintf("are looked for every %v: what they do until then is missed, and some that end before", probe.StartLookEvery),
	}
	const begin = "are taken before their first instruction (as interpreters of scripts maybe behind it)"
	switch {
	case files != probe.StartGate:
		return fmt.Sprintf("waiting for %s: they %s (root, outside of containers, takes them before)", what, late[others])
	case o.name == "":
		return fmt.Sprintf("waiting for %s: they %s", what, begin)
	}
	return fmt.Sprintf("waiting for %s: those of %s %s; those of others %s, the first time", what, plural.Of(named, "file", "files"), begin, late[others])
}

// namedFiles are the files that processes of the name run, or will if somebody starts them
// by their name.
func (o *sessionOptions) namedFiles(d *Deps) (list []string) {
	var seen []os.FileInfo
	add := func(name string) {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 || len(list) >= maxNamed ||
			slices.ContainsFunc(seen, func(s os.FileInfo) bool { return os.SameFile(s, info) }) {
			return
		}
		seen, list = append(seen, info), append(list, name)
	}
	for _, pid := range o.pids {
		add(procfs.FS(d.Proc.Root).Process(pid).Path("exe"))
	}
	for _, dir := range append(filepath.SplitList(d.getenv("PATH")), "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin") {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if glob.Match(o.name, e.Name(), "!^") {
				add(filepath.Join(dir, e.Name()))
			}
		}
	}
	return list
}
