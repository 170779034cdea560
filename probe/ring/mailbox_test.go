package ring

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// bytesAt is a file in memory.
type bytesAt []byte

func (b bytesAt) WriteAt(p []byte, off int64) (int, error) { return copy(b[off:], p), nil }

func (b bytesAt) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func newBox(t *testing.T) (bytesAt, *Layout, *Mailbox) {
	t.Helper()
	l, err := New(Params{})
	if err != nil {
		t.Fatal(err)
	}
	b := make(bytesAt, l.Code.Off)
	box, err := NewMailbox(b, l)
	if err != nil {
		t.Fatal(err)
	}
	return b, l, box
}

func TestMailbox(t *testing.T) {
	b, l, box := newBox(t)
	if r, err := box.Next(); r != nil || err != nil {
		t.Fatalf("an empty mailbox gives %v, %v", r, err)
	}
	for i, body := range [][]byte{[]byte("first"), {}, bytes.Repeat([]byte{7}, MaxRequest), []byte("last")} {
		q := &Request{ID: uint64(100 + i), PID: 42, Body: body}
		if err := q.Post(b, l); err != nil {
			t.Fatal(err)
		}
		if _, taken, done, err := ReadAnswer(b, l, q.ID); taken || done || err != nil {
			t.Errorf("before it is read: %v %v %v", taken, done, err)
		}
		r, err := box.Next()
		if err != nil || r == nil || r.ID != q.ID || r.PID != 42 || !bytes.Equal(r.Body, body) {
			t.Fatalf("got %+v, %v", r, err)
		}
		if again, err := box.Next(); again != nil || err != nil {
			t.Errorf("it is given twice: %+v, %v", again, err)
		}
		if _, taken, done, err := ReadAnswer(b, l, q.ID); !taken || done || err != nil {
			t.Errorf("before it is answered: %v %v %v", taken, done, err)
		}
		if err := box.Answer(r.ID, append([]byte("to "), body[:min(len(body), 99)]...)); err != nil {
			t.Fatal(err)
		}
		got, _, done, err := ReadAnswer(b, l, q.ID)
		if err != nil || !done || !bytes.Equal(got, append([]byte("to "), body[:min(len(body), 99)]...)) {
			t.Errorf("answered %q, %v, %v", got, done, err)
		}
		if _, _, done, _ := ReadAnswer(b, l, q.ID+1); done {
			t.Error("an answer is taken for another's")
		}
	}
	if err := (&Request{ID: 1, Body: make([]byte, MaxRequest+1)}).Post(b, l); !errors.Is(err, ErrMail) {
		t.Errorf("too long: %v", err)
	}
	if err := box.Answer(1, make([]byte, MaxAnswer+1)); !errors.Is(err, ErrMail) {
		t.Errorf("too long an answer: %v", err)
	}
}

// dying writes n bytes and then no more, as a process that is killed.
type dying struct {
	to   bytesAt
	left int
}

var errDead = errors.New("killed")

func (d *dying) WriteAt(p []byte, off int64) (int, error) {
	n := min(len(p), d.left)
	copy(d.to[off:], p[:n])
	d.left -= n
	if n < len(p) {
		return n, errDead
	}
	return n, nil
}

// TestMailboxAskerDies has an asker killed after any byte but the last: nothing
// of what it began is taken for a request, and the next is served.
func TestMailboxAskerDies(t *testing.T) {
	b, l, box := newBox(t)
	before := &Request{ID: 5, PID: 1, Body: []byte("before")}
	body := []byte("a request that is longer than the one before")
	// The last eight bytes are stored at once.
	for n := range mailBody + len(body) + 1 {
		if err := before.Post(b, l); err != nil {
			t.Fatal(err)
		}
		before.ID++
		half := &Request{ID: 1<<63 | uint64(n), PID: 2, Body: body}
		if err := half.Post(&dying{b, n}, l); !errors.Is(err, errDead) {
			t.Fatalf("%d bytes: %v", n, err)
		}
		r, err := box.Next()
		if r != nil && r.ID == half.ID || r != nil && err == nil && string(r.Body) != "before" {
			t.Fatalf("%d bytes: %+v, %v", n, r, err)
		}
	}
	if err := (&Request{ID: 77, Body: body}).Post(b, l); err != nil {
		t.Fatal(err)
	}
	if r, err := box.Next(); err != nil || r == nil || !bytes.Equal(r.Body, body) {
		t.Errorf("afterwards: %+v, %v", r, err)
	}
}

// TestMailboxHostile has the mailbox filled with what no kprobe writes.
func TestMailboxHostile(t *testing.T) {
	b, l, box := newBox(t)
	at := l.Mailbox.Off
	for id := byte(1); id < 200; id++ {
		for i := range MailboxSize {
			b[at+int64(i)] = id*31 + byte(i)*id
		}
		if r, err := box.Next(); r == nil || !errors.Is(err, ErrMail) {
			t.Fatalf("%d: %+v, %v", id, r, err)
		}
		if _, _, done, err := ReadAnswer(b, l, 0x0102030405060708); done && err == nil {
			t.Errorf("%d: an answer", id)
		}
	}
	// A length that is beyond the mailbox, with a sum that is right for nothing.
	q := &Request{ID: 3, Body: []byte("x")}
	if err := q.Post(b, l); err != nil {
		t.Fatal(err)
	}
	copy(b[at+12:], []byte{0xff, 0xff, 0xff, 0xff})
	if r, err := box.Next(); r == nil || r.ID != 3 || !errors.Is(err, ErrMail) {
		t.Errorf("%+v, %v", r, err)
	}
	copy(b[at+answerOff:], []byte{3, 0, 0, 0, 0, 0, 0, 0})
	copy(b[at+answerOff+16:], []byte{0xff, 0xff, 0xff, 0xff})
	if _, _, done, err := ReadAnswer(b, l, 3); !done || !errors.Is(err, ErrCorrupt) {
		t.Errorf("%v, %v", done, err)
	}
}

// TestMailboxPlaces: kprobes of other builds look where the page says, and the
// longest request ends before the answer, the longest answer within the mailbox.
func TestMailboxPlaces(t *testing.T) {
	if answerOff != 49152 || mailBody != 64 {
		t.Errorf("the answer is at %d, bodies at %d", answerOff, mailBody)
	}
	if mailBody+MaxRequest != answerOff || answerOff+mailBody+MaxAnswer != MailboxSize {
		t.Errorf("a request has %d bytes, an answer %d, of %d", MaxRequest, MaxAnswer, MailboxSize)
	}
}
