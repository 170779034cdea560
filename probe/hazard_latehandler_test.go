package probe

import (
	"fmt"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
)

// TestHazardP45 leaves definitions that read through pointers in a program which sets
// handlers of faults afterwards, without the C library, and has a thread that blocks their
// signals. What can't be read is (fault), and no fault is seen by anybody.
func TestHazardP45(t *testing.T) {
	defs := []string{
		"p:bad/mem work a=+0($arg1):u64 b=+0(+8($arg1)):u32 c=+0($arg1):u8[8] d=+0($arg1):char[64]",
		"p:bad/text work s=+0($arg1):string t=+0(+8($arg1)):string",
		"p:bad/texts work n=+0($arg1):string[2]",
		"p:bad/more work v=+0($arg1):u8 if v != 3",
		"p:bad/stack work v=+0($arg1):u8 stack=4",
		"r:bad/ret work x=+0($arg1):u32",
	}
	// Of the program's eight addresses, at how many what can't be read.
	want := map[string]uint64{"mem": 6 + 7 + 6 + 6, "text": 5 + 7, "more": 0, "stack": 4, "ret": 5}
	for name, flags := range map[string][]string{"dynamic": {"-O1", "-pthread"}, "static": {"-O1", "-static", "-pthread"}} {
		t.Run(name, func(t *testing.T) {
			sub := startSubject(t, fixture.Build(t, "hazard_latehandler.c", flags...))
			leaveIn(t, sub.pid(), Options{Detach: true}, defs...)
			fmt.Fprintln(sub.in, "handler")
			sub.expect("set")
			const rounds = 20
			for n := range rounds {
				fmt.Fprintln(sub.in, "call")
				sub.expect(fmt.Sprintf("called %d", (n+1)*16))
			}
			r, err := OpenRecorder(sub.pid())
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			sink := &faultSink{hits: map[string]uint64{}, faults: map[string]uint64{}}
			if err := r.Snapshot(t.Context(), 0, sink); err != nil {
				t.Fatal(err)
			}
			for event, n := range want {
				hits := uint64(8)
				if event == "more" {
					hits = 4 // who compares what can't be read is left out
				}
				if sink.hits[event] != 2*rounds*hits || sink.faults[event] != 2*rounds*n {
					t.Errorf("%s: %d hits with %d faults, want %d and %d", event, sink.hits[event], sink.faults[event], 2*rounds*hits, 2*rounds*n)
				}
			}
			sub.in.Close()
			_ = sub.cmd.Wait() // the status tells
			if status := sub.cmd.ProcessState.ExitCode(); status != 7 {
				t.Errorf("the program ended with %d, want 7", status)
			}
		})
	}
}

// faultSink counts hits, and values that could not be read, by event.
type faultSink struct {
	hits, faults map[string]uint64
	vals         []fetch.Value
}

func (f *faultSink) Hit(h *Hit) error {
	f.hits[h.Event.Name]++
	var err error
	if f.vals, err = h.Program.Decode(h.Data, f.vals); err != nil {
		return err
	}
	for i := range f.vals {
		if f.vals[i].Fault {
			f.faults[h.Event.Name]++
		}
	}
	return nil
}
