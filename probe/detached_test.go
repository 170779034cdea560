package probe

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"kprobe/fetch"
	"kprobe/internal/fixture"
	"kprobe/probe/area"
)

// recorderSubject is recorder_calls.
type recorderSubject struct {
	*subject
	threads int
	counts  string // its file
}

func startRecorded(t *testing.T, threads int, more ...string) *recorderSubject {
	t.Helper()
	counts := filepath.Join(t.TempDir(), "counts")
	args := append([]string{fmt.Sprint(threads), counts}, more...)
	return &recorderSubject{startSubject(t, fixture.Build(t, "recorder_calls.c", "-O2", "-pthread"), args...), threads, counts}
}

const recordedHit = "p:rec/hit hit n=$arg1:u64 check=$arg2:u64 thread=$arg3:u64"

// left leaves definitions in the subject, and has it work until each thread has made a
// call.
func (s *recorderSubject) left(o Options, defs ...string) {
	s.t.Helper()
	o.Detach = true
	leaveIn(s.t, s.pid(), o, defs...)
	s.line()
	begun := func() bool {
		_, returned := s.counted()
		return !slices.Contains(returned[:s.threads], 0)
	}
	if !waitUntil(begun) {
		s.t.Fatal("a thread makes no calls")
	}
}

// leaveIn leaves definitions in a process.
func leaveIn(t *testing.T, pid int, o Options, defs ...string) {
	t.Helper()
	s, err := Attach(t.Context(), []int{pid}, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	var list []*fetch.Def
	for _, d := range defs {
		list = append(list, parsed(t, d))
	}
	if err := s.Arm(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	out, err := s.Detach(t.Context())
	if err != nil || len(out) > 0 {
		t.Fatal(out, err)
	}
	if area.HasTracer(pid) {
		t.Fatal("a thread is traced still")
	}
}

// recordedSink checks hits of recorder_calls: none is torn, none invented, they come in
// order of time.
type recordedSink struct {
	t    *testing.T
	vals []fetch.Value
	time uint64
	n    uint64
	last map[uint64]uint64 // call, by thread
}

// factor is K in recorder_calls.c.
const factor = 0x9E3779B97F4A7C15

func (r *recordedSink) Hit(h *Hit) error {
	if h.Time < r.time {
		return fmt.Errorf("a hit at %d behind one at %d", h.Time, r.time)
	}
	r.time = h.Time
	if h.Event.Name != "hit" {
		return nil
	}
	var err error
	if r.vals, err = h.Program.Decode(h.Data, r.vals); err != nil {
		return err
	}
	n, check, thread := r.vals[0].Int, r.vals[1].Int, r.vals[2].Int
	if n*factor != check || thread >= 64 || n == 0 {
		return fmt.Errorf("torn or invented: hit(%d, %#x, %d)", n, check, thread)
	}
	if r.last == nil {
		r.last = map[uint64]uint64{}
	}
	if n <= r.last[thread] {
		return fmt.Errorf("call %d of thread %d behind its call %d", n, thread, r.last[thread])
	}
	r.last[thread] = n
	r.n++
	return nil
}

// begun is how many calls the threads have begun.
func (s *recorderSubject) begun() (n uint64) {
	begun, _ := s.counted()
	for _, v := range begun[:s.threads] {
		n += v
	}
	return n
}

// look takes a snapshot and checks it.
func (s *recorderSubject) look() *recordedSink {
	s.t.Helper()
	r, err := OpenRecorder(s.pid())
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Close()
	sink := &recordedSink{t: s.t}
	if err := r.Snapshot(s.t.Context(), 0, sink); err != nil {
		s.t.Fatal(err)
	}
	if h, err := r.Held(); err != nil || h.Odd > 0 {
		s.t.Errorf("%d records are not what the book says: %v", h.Odd, err)
	}
	return sink
}

// takenOut takes everything out, looks whether nothing is left, and gives how many events
// there were.
func (s *subject) takenOut() int {
	s.t.Helper()
	n := s.removed()
	checkClean(s.t, s.pid())
	return n
}

// removed removes all events of detached probes, and returns how many there were.
func (s *subject) removed() int {
	s.t.Helper()
	l := openedLive(s.t, s.pid())
	var names []string
	for _, st := range l.Stats() {
		names = append(names, st.Event.Group+"/"+st.Event.Name)
	}
	if err := l.Remove(s.t.Context(), names); err != nil {
		s.t.Fatal(err)
	}
	return len(names)
}

// TestDetachedRing leaves a probe in a program whose threads fill the smallest rings
// many times over, in full form with a billion hits: each snapshot has whole records in order,
// and in the end every call is a hit.
func TestDetachedRing(t *testing.T) {
	s := startRecorded(t, 4)
	s.left(Options{RingSize: MinRing}, recordedHit)
	for range 4 {
		s.look()
	}
	for many := uint64(full(0, 1_000_000_000)); s.begun() < many; time.Sleep(time.Second) {
		s.look()
	}
	calls := uint64(0)
	if _, err := fmt.Sscanf(s.work(), "done %d", &calls); err != nil {
		t.Fatal(err)
	}
	sink := s.look()
	l := openedLive(t, s.pid())
	st := l.Stats()[0]
	if st.Hits != calls {
		t.Errorf("%d hits of %d calls: %+v", st.Hits, calls, st.Counts())
	}
	if sink.n == 0 || sink.n > calls {
		t.Errorf("the rings hold %d of %d", sink.n, calls)
	}
	t.Logf("%d calls, %d lost, %d held", calls, st.Lost, sink.n)
	s.takenOut()
	s.end()
}

// TestDetachedStorm is the same while signals come, whose handlers hit probes, and
// children are made; and then while handlers leave calls by siglongjmp, some of them in
// the midst of a record: no more hits are missing than were left so.
func TestDetachedStorm(t *testing.T) {
	for _, how := range []string{"storm", "jumps"} {
		t.Run(how, func(t *testing.T) {
			s := startRecorded(t, 3, how)
			s.left(Options{RingSize: MinRing}, recordedHit, "p:rec/hit2 hit2 n=$arg1:u64")
			for range 4 {
				s.look()
			}
			var calls, jumps uint64
			if _, err := fmt.Sscanf(s.work(), "done %d %d", &calls, &jumps); err != nil {
				t.Fatal(err)
			}
			s.look()
			st := openedLive(t, s.pid()).Stats()[0]
			t.Logf("%d calls, %d left, %+v", calls, jumps, st.Counts())
			if st.Event.Name != "hit" || st.Hits > calls || calls-st.Hits > jumps || (jumps > 0) != (how == "jumps") {
				t.Errorf("%d hits of %d calls, of which %d were left: %+v", st.Hits, calls, jumps, st.Counts())
			}
			s.takenOut()
			s.end()
		})
	}
}

// TestDetachedTexts leaves probes of all that goes through code that probes share, texts
// and returns, in a program: there is room for it.
func TestDetachedTexts(t *testing.T) {
	s := startRecorded(t, 1)
	s.left(Options{RingSize: MinRing}, "p:rec/text hit s=+0($arg1):string n=$arg1:u64", "r:rec/back hit v=$retval")
	if _, err := fmt.Sscanf(s.work(), "done %d", new(uint64)); err != nil {
		t.Fatal(err)
	}
	l := openedLive(t, s.pid())
	for _, st := range l.Stats() {
		if st.Hits == 0 {
			t.Errorf("%s has no hits", st.Event.Name)
		}
	}
	s.takenOut()
	s.end()
}
