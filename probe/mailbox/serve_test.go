package mailbox

import (
	"errors"
	"strings"
	"testing"

	"kprobe/probe/ring"
)

// TestHazardH4: a process can't have a kprobe with more rights probe others.
func TestHazardH4(t *testing.T) {
	for _, tt := range []struct {
		owners []uint32
		self   uint32
		ok     bool
	}{
		{nil, 0, true},
		{[]uint32{1000}, 0, true},
		{[]uint32{1000}, 1000, true},
		{[]uint32{0, 0}, 0, true},
		{[]uint32{1000, 1000}, 1000, true},
		{[]uint32{1000, 1000}, 0, false},
		{[]uint32{1000, 0}, 0, false}, // of several users, or one that isn't dumpable
		{[]uint32{1000, 1001}, 1000, false},
		{[]uint32{0, 1000}, 0, false},
	} {
		if err := MayAsk(tt.owners, tt.self); (err == nil) != tt.ok {
			t.Errorf("processes of %v, kprobe of %d: %v", tt.owners, tt.self, err)
		}
	}
}

// inMemory is a mailbox, and its file.
func inMemory(t *testing.T) (*ring.Mailbox, posts) {
	t.Helper()
	mem := make(posts, ring.MailboxSize)
	box, err := ring.NewMailbox(mem, ownLayout)
	if err != nil {
		t.Fatal(err)
	}
	return box, mem
}

// posts is memory that requests are written to.
type posts []byte

func (p posts) WriteAt(b []byte, off int64) (int, error) { return copy(p[off:], b), nil }
func (p posts) ReadAt(b []byte, off int64) (int, error)  { return copy(b, p[off:]), nil }

// TestServe: what may be asked is done once; what is damaged or may not be asked is
// refused, and not done.
func TestServe(t *testing.T) {
	no := errors.New("not by you")
	for _, tt := range []struct {
		name   string
		may    error
		damage int // at this offset of the mailbox
		want   string
	}{
		{"asked", nil, -1, "done: hello"},
		{"may not", no, -1, "refused: not by you"},
		{"damaged", nil, 64, "refused: request of another kprobe: it is damaged"},
		{"too long", nil, 14, "refused: request of another kprobe: it is damaged"},
		{"of another version", nil, 8, "refused: request of another kprobe: it is of version 254, this kprobe understands 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			box, mem := inMemory(t)
			serve := func() *ring.Request {
				r, err := Serve(box, func() error { return tt.may },
					func(r *ring.Request) []byte { return []byte("done: " + string(r.Body)) },
					func(err error) []byte { return []byte("refused: " + err.Error()) })
				if err != nil {
					t.Error(err)
				}
				return r
			}
			if serve() != nil {
				t.Error("there was a request")
			}
			if err := (&ring.Request{ID: 7, PID: 3, Body: []byte("hello")}).Post(mem, ownLayout); err != nil {
				t.Fatal(err)
			}
			if tt.damage >= 0 {
				mem[tt.damage] ^= 0xff
			}
			if r := serve(); r == nil || r.ID != 7 || r.PID != 3 {
				t.Errorf("the request is %+v", r)
			}
			answer, taken, done, err := ring.ReadAnswer(mem, ownLayout, 7)
			if string(answer) != tt.want || !taken || !done || err != nil {
				t.Errorf("answered %q, taken %v, done %v, %v; want %q", answer, taken, done, err, tt.want)
			}
			if serve() != nil {
				t.Error("it was asked twice")
			}
		})
	}
}

// TestServeTooMuch: an answer that has no room is an error, and no half of one is there.
func TestServeTooMuch(t *testing.T) {
	box, mem := inMemory(t)
	if err := (&ring.Request{ID: 7}).Post(mem, ownLayout); err != nil {
		t.Fatal(err)
	}
	r, err := Serve(box, func() error { return nil },
		func(*ring.Request) []byte { return []byte(strings.Repeat("x", ring.MaxAnswer+1)) }, nil)
	if r == nil || !errors.Is(err, ring.ErrMail) {
		t.Errorf("%v, %v", r, err)
	}
	if _, taken, done, _ := ring.ReadAnswer(mem, ownLayout, 7); !taken || done {
		t.Errorf("taken %v, done %v", taken, done)
	}
}
