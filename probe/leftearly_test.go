package probe

import (
	"context"
	"strings"
	"testing"
)

// TestHitsBeforeLeft has a session that is to leave its probes run for a while before it
// does: what a tracer would record then, of breakpoints, is no hit, and the rings are whole.
func TestHitsBeforeLeft(t *testing.T) {
	s := startRecorded(t, 2, "paced")
	s.line()
	session, err := Attach(t.Context(), []int{s.pid()}, Options{
		Detach: true, RingSize: MinRing,
		Triggers: triggersOf(t, "hit:snapshot if n == 0"), // so that all take locked instructions
	})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(t.Context())
	const slow = `p:rec/slow hit f=$arg1:symstr if f != "none"`
	if err := session.Arm(t.Context(), parseDefs(t, recordedHit, slow)); err != nil {
		t.Fatal(err)
	}
	begun, _ := s.counted()
	stop := traceMeanwhile(t, session)
	if !waitUntil(func() bool { now, _ := s.counted(); return now[0] > begun[0]+200 && now[1] > begun[1]+200 }) {
		t.Error("the program makes no calls")
	}
	stop()
	out, err := session.Detach(t.Context())
	if err != nil || len(out) != 1 || !strings.Contains(out[0].Why, "breakpoint") {
		t.Fatalf("%+v, %v", out, err)
	}
	// Until each ring has been full.
	at, _ := s.counted()
	if !waitUntil(func() bool { now, _ := s.counted(); return now[0] > at[0]+MinRing/24 && now[1] > at[1]+MinRing/24 }) {
		t.Error("the program makes no calls")
	}
	if got := s.work(); !strings.HasPrefix(got, "done ") {
		t.Errorf("the program printed %q", got)
	}
	// It makes no calls any more.
	sink := s.look()
	r, err := OpenRecorder(s.pid())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	held, err := r.Held()
	if err != nil || sink.n == 0 || held.Stats[0].Lost*2 > held.Stats[0].Hits {
		t.Errorf("%d hits are held, %+v, %v", sink.n, held, err)
	}
	s.takenOut()
	s.end()
}

// traceMeanwhile has a session trace its process until stop is called, as in the moments of arming and leaving: Run would
// end the session.
func traceMeanwhile(t *testing.T, s *Session) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- s.engine.Tracer.Run(ctx, s.handler()) }()
	return func() {
		cancel()
		<-ran
	}
}
