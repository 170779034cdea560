package probe

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"

	"kprobe/internal/fixture"
	"kprobe/probe/detour"
	"kprobe/probe/engine"
	"kprobe/probe/memory"
)

// notedIn opens the memory of a process with probes that were left, and finds where it notes which memory is there.
func notedIn(t *testing.T, pid int) (mem *os.File, gate int64) {
	t.Helper()
	l := openedLive(t, pid)
	defer l.Close()
	var at [8]byte
	file := l.file()
	if l.host != 0 {
		file.At = l.host
	}
	if _, err := file.ReadAt(at[:], l.snap.Layout.Header.Off+memory.HeaderGate); err != nil {
		t.Fatal(err)
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mem.Close() })
	return mem, int64(binary.LittleEndian.Uint64(at[:]))
}

// TestHazardP45Known: texts that were read are read again without a question, until their memory goes away, in
// whatever way. Then no probe reads them, though no signal handler could help it.
func TestHazardP45Known(t *testing.T) {
	for i, name := range []string{"dynamic", "static", "dynamic", "static", "dynamic", "static"} {
		how := []string{"alone", "beside", "emptied"}[i/2]
		t.Run(name+"-"+how, func(t *testing.T) {
			flags := map[string][]string{"dynamic": {"-O1"}, "static": {"-O1", "-static"}}[name]
			sub := startSubject(t, fixture.Build(t, "hazard_known.c", flags...))
			leaveFirst(t, sub, name == "static", how)
			leaveIn(t, sub.pid(), Options{Detach: true}, "p:known/text work s=+0($arg1):string", "p:known/word work w=+0($arg1):u64")
			mem, gate := notedIn(t, sub.pid())
			state := func() byte {
				var b [1]byte
				if _, err := mem.ReadAt(b[:], gate+engine.KnownOff+detour.KnownState); err != nil {
					t.Fatal(err)
				}
				return b[0]
			}
			shut := func(n byte) {
				if _, err := mem.WriteAt([]byte{n}, gate+engine.CallsOff+4); err != nil {
					t.Fatal(err)
				}
			}
			var there, gone uint64
			call := func(way string) {
				t.Helper()
				fmt.Fprintln(sub.in, way)
				var n, m uint64
				if _, err := fmt.Sscanf(strings.TrimPrefix(sub.expect(way), way), "%d %d", &n, &m); err != nil {
					t.Fatal(way, err)
				}
				there, gone = there+n, gone+m
			}
			if got := state(); got != detour.KnownOn {
				t.Fatalf("the state is %d", got)
			}
			call("stays")
			shut(1) // nothing may ask
			call("stays")
			shut(0)
			for _, way := range []string{"unmapped", "middle", "generic", "raw", "protected", "moved", "over", "guarded", "fileover", "truncated", "later", "grown", "lower"} {
				call(way)
			}
			if got := state(); got != detour.KnownOn {
				t.Errorf("then the state is %d", got)
			}
			call("code")
			if got := state(); got != detour.KnownOver {
				t.Errorf("the program has code that nobody knows, and the state is %d", got)
			}
			call("stays")
			r, err := OpenRecorder(sub.pid())
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			sink := &faultSink{hits: map[string]uint64{}, faults: map[string]uint64{}}
			if err := r.Snapshot(t.Context(), 0, sink); err != nil {
				t.Fatal(err)
			}
			for _, event := range []string{"text", "word"} {
				if sink.hits[event] != there+gone || sink.faults[event] != gone || gone < 20 {
					t.Errorf("%s: %d hits with %d faults, want %d and %d", event, sink.hits[event], sink.faults[event], there+gone, gone)
				}
			}
			sub.takenOut()
			sub.in.Close()
			_ = sub.cmd.Wait() // the status tells
			if status := sub.cmd.ProcessState; status.ExitCode() != 7 {
				t.Errorf("the program ended with %v, want 7", status)
			}
		})
	}
}
