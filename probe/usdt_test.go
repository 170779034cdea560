package probe

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/probe/engine"
	"kprobe/probe/semaphore"
	"kprobe/symbols"
)

// forms is a running usdt_forms.
type forms struct {
	*subject
	counter int64 // where its semaphore is
}

func startForms(t *testing.T, path string, args ...string) *forms {
	t.Helper()
	f := &forms{subject: startSubject(t, path, args...)}
	if _, err := fmt.Sscanf(f.ready, "ready 0x%x", &f.counter); err != nil {
		t.Fatalf("%q: %v", f.ready, err)
	}
	return f
}

// pass has the program pass its probes, and gives what it says of them.
func (f *forms) pass() []string {
	f.t.Helper()
	if _, err := f.in.Write([]byte("pass\n")); err != nil {
		f.t.Fatal(err)
	}
	return strings.Split(strings.TrimPrefix(f.expect("done "), "done "), "|")
}

// semaphore reads the program's semaphore, and adds to it, as another tracer does.
func (f *forms) semaphore(add int) uint16 {
	f.t.Helper()
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", f.pid()), os.O_RDWR, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	defer mem.Close()
	var b [2]byte
	if _, err := mem.ReadAt(b[:], f.counter); err != nil {
		f.t.Fatal(err)
	}
	n := binary.LittleEndian.Uint16(b[:]) + uint16(add)
	binary.LittleEndian.PutUint16(b[:], n)
	if add != 0 {
		if _, err := mem.WriteAt(b[:], f.counter); err != nil {
			f.t.Fatal(err)
		}
	}
	return n
}

// wants waits until the semaphore has a value.
func (f *forms) wants(n uint16) {
	f.t.Helper()
	if !waitUntil(func() bool { return f.semaphore(0) == n }) {
		f.t.Errorf("the semaphore is %d, want %d", f.semaphore(0), n)
	}
}

// formsDefs are definitions of all of its probes.
func formsDefs() (defs []string) {
	for _, name := range strings.Fields("wide narrow parts constants addresses based indexed stack globals floats guarded") {
		defs = append(defs, "p:"+name+" %forms:"+name+" $arg*")
	}
	return append(defs, "p:texts %forms:texts a=$arg1:string b=$arg2:string n=$arg3", "p:many %forms:many arg1=$arg1", "p:unreadable %forms:unreadable arg2=$arg2")
}

// TestUSDTForms records every form of argument that a note can have, by jumps and by
// breakpoints, of a program that is moved, fixed, and stripped: the values are those
// that the program prints. All sites of a name are one event.
func TestUSDTForms(t *testing.T) {
	whole := fixture.Build(t, "usdt_forms.c", "-O1", "-rdynamic")
	stripped := filepath.Join(t.TempDir(), "stripped")
	if text, err := exec.Command(fixture.NeedTool(t, "strip"), "-o", stripped, whole).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, c := range []struct {
		prog string
		o    Options
	}{
		{whole, Options{}}, {whole, Options{NoOptimize: true}}, {stripped, Options{}},
		{fixture.Build(t, "usdt_forms.c", "-O1", "-no-pie"), Options{}},
	} {
		t.Run(fmt.Sprintf("%s-%v", filepath.Base(c.prog), c.o.NoOptimize), func(t *testing.T) {
			sub := startForms(t, c.prog)
			l := attach(t, sub.pid(), c.o, formsDefs()...)
			sub.wants(1)
			var want []string
			for range 3 {
				said := sub.pass()
				if got := said[len(said)-1]; got != "semaphore 1" {
					t.Errorf("the program has %s", got)
				}
				want = append(want, said[:len(said)-1]...)
			}
			for _, st := range l.s.Stats() {
				places := 1
				if st.Event.Name == "many" {
					places = 2
				}
				if traps := !readsBases() && st.Event.Name == "addresses"; st.Places != places || !c.o.NoOptimize && (st.Trapped != 0) != traps {
					t.Errorf("%s has %d places, %d of them breakpoints", st.Event.Name, st.Places, st.Trapped)
				}
			}
			l.finish(sub.pid())
			if got := l.sink.all(); !slices.Equal(got, want) {
				t.Errorf("recorded\n%s\nthe program has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			sub.wants(0)
			sub.end()
		})
	}
}

// TestUSDTSemaphores raises a semaphore by one for all probes of a session, also while
// another tracer has it raised, and lowers it when the last of them goes or is switched
// off, and when the session ends.
func TestUSDTSemaphores(t *testing.T) {
	sub := startForms(t, fixture.Build(t, "usdt_forms.c", "-O1"))
	l := attach(t, sub.pid(), Options{}, "p:one %forms:guarded n=$arg1", "p:two %*:guarded")
	sub.wants(1)
	one, two := l.s.Events()[0], l.s.Events()[1]
	if err := l.s.Remove(t.Context(), two); err != nil {
		t.Error(err)
	}
	sub.wants(1)
	if err := l.s.Enable(false, one); err != nil {
		t.Error(err)
	}
	sub.wants(0)
	if said := sub.pass(); slices.Contains(said, "guarded arg1=0") {
		t.Errorf("switched off, the program passes %q", said)
	}
	// By another terminal, and with another tracer's part in it.
	sub.semaphore(5)
	live := openedLive(t, sub.pid())
	for i, want := range []uint16{6, 5, 6} {
		if _, err := live.Enable(func(string, string) bool { return true }, i%2 == 0); err != nil {
			t.Error(err)
		}
		sub.wants(want)
	}
	sub.pass()
	if st := l.stat("one"); st.Hits != 1 {
		t.Errorf("%d hits, want one", st.Hits)
	}
	l.finish(sub.pid())
	if n := sub.semaphore(0); n != 5 {
		t.Errorf("the semaphore is %d at the end, another tracer's part is 5", n)
	}
	sub.end()
}

// TestUSDTSemaphoresOfSeveral switches a probe of several processes off and on.
func TestUSDTSemaphoresOfSeveral(t *testing.T) {
	prog := fixture.Build(t, "usdt_forms.c", "-O1")
	subs := []*forms{startForms(t, prog), startForms(t, prog), startForms(t, prog)}
	var pids []int
	for _, sub := range subs {
		pids = append(pids, sub.pid())
	}
	s, err := Attach(t.Context(), pids, Options{Log: logTo(slog.LevelWarn, func(text string) { t.Error(text) })})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(t.Context()) })
	if err := s.Arm(t.Context(), parseDefs(t, "p:guarded %forms:guarded")); err != nil {
		t.Fatal(err)
	}
	l := collecting(t, s)
	l.run()
	for _, on := range []bool{true, false, true} {
		if err := s.Enable(on, s.Events()...); err != nil {
			t.Error(err)
		}
		for _, sub := range subs {
			sub.wants(map[bool]uint16{true: 1}[on])
		}
	}
	l.finish(pids[0])
	for _, sub := range subs {
		sub.wants(0)
		sub.end()
	}
}

// TestUSDTSemaphoreChildren: a child of fork has a copy of the semaphore. Without Follow
// it is lowered there, with Follow it is raised for the probes that the child has.
func TestUSDTSemaphoreChildren(t *testing.T) {
	for _, follow := range []bool{false, true} {
		sub := startForms(t, fixture.Build(t, "usdt_forms.c", "-O1"), "fork")
		l := attach(t, sub.pid(), Options{Follow: follow}, "p:guarded %forms:guarded n=$arg1")
		sub.wants(1)
		want, hits := "kid 0", uint64(2)
		if follow {
			want, hits = "kid 1", 4
		}
		for range 2 {
			if said := sub.pass(); !slices.Contains(said, want) || said[len(said)-1] != "semaphore 1" {
				t.Errorf("followed %v, the program says %q", follow, said)
			}
		}
		if st := l.stat("guarded"); st.Hits != hits {
			t.Errorf("followed %v: %d hits, want %d", follow, st.Hits, hits)
		}
		l.finish(sub.pid())
		sub.wants(0)
		sub.end()
	}
}

// TestUSDTSemaphoreKilled kills kprobe: whoever recovers lowers what was raised, once,
// and nothing of another tracer's.
func TestUSDTSemaphoreKilled(t *testing.T) {
	bin := buildKprobe(t)
	sub := startForms(t, fixture.Build(t, "usdt_forms.c", "-O1"))
	for kind := range killKinds {
		before := sub.semaphore(0)
		k := startKprobe(t, bin, "trace", "-q", "-o", newFile(t).Name(), "-p", fmt.Sprint(sub.pid()), "%forms:*")
		sub.wants(before + 1)
		sub.semaphore(1)
		k.kill(kind)
		<-k.done
		if !waitUntil(func() bool { return !traced(sub.pid()) }) {
			t.Fatal("it is still traced")
		}
		if kind == killBoth {
			sub.wants(before + 2)
			for range 2 {
				if _, err := Recover(t.Context(), []int{sub.pid()}); err != nil {
					t.Errorf("recover: %v", err)
				}
			}
		}
		sub.wants(before + 1)
		checkClean(t, sub.pid())
	}
	if said := sub.pass(); said[len(said)-1] != fmt.Sprintf("semaphore %d", killKinds) {
		t.Errorf("the program says %q", said)
	}
	sub.end()
}

// TestUSDTPending: the probe of a library that comes and goes is armed and its semaphore
// raised each time before the program can use it.
func TestUSDTPending(t *testing.T) {
	dir := t.TempDir()
	prog, lib := filepath.Join(dir, "loop"), filepath.Join(dir, "libpart.so")
	src := filepath.Join(fixture.Root(), "testdata")
	cc := fixture.NeedCC(t)
	run(t, cc, "-O1", "-fPIC", "-shared", "-o", lib, filepath.Join(src, "usdt_library.c"))
	run(t, cc, "-O1", "-rdynamic", "-o", prog, filepath.Join(src, "library_loop.c"), "-ldl", "-lpthread")
	sub := startSubject(t, prog, lib, "2", "20")
	l := attach(t, sub.pid(), Options{Pending: always}, "p:work libpart.so:%library:work n=$arg1")
	calls, _ := doneLine(t, sub.work())
	if st := l.stat("work"); st.Hits != calls {
		t.Errorf("%d hits of %d calls", st.Hits, calls)
	}
	l.finish(sub.pid())
	sub.end()
}

// TestUSDTErrors says what a place could have been, and which sites are left out.
func TestUSDTErrors(t *testing.T) {
	sub := startForms(t, fixture.Build(t, "usdt_forms.c", "-O1"))
	var said []string
	s, err := Attach(t.Context(), []int{sub.pid()}, Options{Log: logTo(slog.LevelWarn, func(text string) { said = append(said, text) })})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	for def, want := range map[string]string{
		"%forms:garded":                "the closest: %forms:guarded",
		"%form:guarded":                "the closest: %forms:guarded",
		"%nobody:nothing":              "no statically defined probe (USDT) %nobody:nothing in process",
		"libc:%forms:guarded":          "the closest: usdt_forms:%forms:guarded",
		"%forms:guarded $arg2":         "%forms:guarded has one argument at guarded+",
		"%forms:many $arg3":            "%forms:many has 2 arguments at many_one",
		"%forms:unreadable $arg1":      `the note's argument "16@%xmm0" can't be read`,
		"%forms:unreadable $arg3":      `the note's argument "4@.LC99(%rip)" can't be fetched: no symbol .LC99`,
		"%forms:unreadable $arg4":      `the note's argument "8@%st(1)" can't be`,
		"%forms:narrow x=$arg1:string": "This type does not fit for string",
		"%forms:guarded $farg1":        "has the arguments of its note",
		"%forms:guarded $arg1->member": "u",
		"r %forms:guarded":             "Retprobe address must be an function entry",
		"j %forms:guarded":             "$arg* can be used only on function entry",
	} {
		d, err := fetch.Parse(def)
		if err == nil {
			err = s.Arm(t.Context(), []*fetch.Def{d})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", def, err)
		}
	}
	sub.wants(0)
	if err := s.Arm(t.Context(), parseDefs(t, "%forms:many $arg2")); err != nil || len(said) != 1 || !strings.Contains(said[0], "1 of 2 places") {
		t.Errorf("%v, %q", err, said)
	}
	if err := s.Arm(t.Context(), parseDefs(t, "p:all %forms:* pid=$pid")); err != nil {
		t.Error(err)
	}
	if st := s.Stats()[1]; st.Places != 15 {
		t.Errorf("a pattern has %d places", st.Places)
	}
	sub.wants(1)
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	sub.wants(0)
	sub.end()
}

// TestUSDTSemaphoreStates recovers from each of the states in which a killed kprobe may
// leave a counter and its entry.
func TestUSDTSemaphoreStates(t *testing.T) {
	for _, c := range []struct {
		state             semaphore.State
		before, now, want uint16
		inode             uint64 // besides the file's own
	}{
		{semaphore.Raising, 4, 4, 4, 0},  // not written yet
		{semaphore.Raising, 4, 5, 4, 0},  // written
		{semaphore.Raised, 4, 9, 8, 0},   // others have raised it since
		{semaphore.Raised, 4, 0, 0, 0},   // somebody has set it
		{semaphore.Lowering, 5, 5, 4, 0}, // not written yet
		{semaphore.Lowering, 5, 4, 4, 0}, // written
		{semaphore.Raised, 4, 5, 5, 1},   // another file is mapped there by now
		{semaphore.Free, 4, 5, 5, 0},     // nothing
		{0xffff, 4, 5, 5, 0},             // no session writes that
	} {
		sub := startForms(t, fixture.Build(t, "usdt_forms.c", "-O1"))
		l := attach(t, sub.pid(), Options{}, "p:guarded %forms:guarded")
		sub.wants(1)
		var tg *engine.Target
		err := l.s.engine.Tracer.Do(func() error {
			tg = l.s.engine.Targets[sub.pid()]
			entry := tg.Semaphores.EntryOf(symbols.Addr(sub.counter))
			b := make([]byte, semaphore.EntrySize)
			if _, err := tg.Proc.ReadMemory(b, entry); err != nil {
				return err
			}
			e := semaphore.Decode(b)
			e.Inode, e.State, e.Before = e.Inode+c.inode, c.state, c.before
			return tg.Proc.WriteMemory(e.Encode(), entry)
		})
		if err != nil {
			t.Fatal(err)
		}
		sub.semaphore(int(c.now) - 1)
		l.finish(sub.pid())
		if n := sub.semaphore(0); n != c.want {
			t.Errorf("%+v: the counter is %d", c, n)
		}
		sub.end()
	}
}
