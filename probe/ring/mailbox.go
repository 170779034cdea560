package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync/atomic"
)

// The mailbox: how another kprobe asks the session's kprobe for a change
//
// It holds one request at a time. A process that wants to ask holds a lock (a flock on the
// target's /proc/PID/mem), which ends with the process.
//
//	+0      u64 ID of the request, 0: none; stored last
//	+8      u32 MailVersion, +12 u32 length, +16 u32 CRC-32 of the body
//	+20     u32 pid of the asking process
//	+64     the body, at most MaxRequest bytes
//	+49152  u64 ID of the request answered; stored last
//	+49160  u64 ID of the request that is being worked on
//	+49168  u32 length, +49172 u32 CRC-32 of the body
//	+49216  the body, at most MaxAnswer bytes
//
// A request is posted by storing 0 in its ID, then the rest, then the ID: a process that dies
// in between has posted nothing. The session's kprobe copies a request and then reads the ID
// again: if another request was posted over it meanwhile, the copy is dropped. IDs are random,
// so a process knows that an answer is its own, whatever earlier ones have left.
const (
	MailVersion = 1
	MaxRequest  = answerOff - mailBody
	MaxAnswer   = MailboxSize - answerOff - mailBody

	answerOff = 48 << 10
	mailBody  = 64
)

// ErrMail is wrapped by errors about a request or an answer that can't be sent, or that doesn't
// match its checksum.
var ErrMail = errors.New("request of another kprobe")

// Request is what another kprobe asks for.
type Request struct {
	ID   uint64 // not 0
	PID  uint32 // of who asks; what it says, to be shown only
	Body []byte // the format is probe's
}

// Post puts a request into the mailbox.
func (r *Request) Post(w io.WriterAt, l *Layout) error {
	if len(r.Body) > MaxRequest {
		return fmt.Errorf("%w: %d bytes, at most %d fit", ErrMail, len(r.Body), MaxRequest)
	}
	head := make([]byte, mailBody)
	le := binary.LittleEndian
	le.PutUint32(head[8:], MailVersion)
	le.PutUint32(head[12:], uint32(len(r.Body)))
	le.PutUint32(head[16:], crc32.ChecksumIEEE(r.Body))
	le.PutUint32(head[20:], r.PID)
	at := l.Mailbox.Off
	for _, part := range []struct {
		b   []byte
		off int64
	}{{head[:8], 0}, {head[8:], 8}, {r.Body, mailBody}, {le.AppendUint64(nil, r.ID), 0}} {
		if _, err := w.WriteAt(part.b, at+part.off); err != nil {
			return fmt.Errorf("post a request: %w", err)
		}
	}
	return nil
}

// ReadAnswer reads the answer to a request; done is false while there is none.
// taken reports that the request was read.
func ReadAnswer(r io.ReaderAt, l *Layout, id uint64) (body []byte, taken, done bool, err error) {
	head := make([]byte, mailBody)
	if err := readFull(r, head, l.Mailbox.Off+answerOff); err != nil {
		return nil, false, false, fmt.Errorf("read the answer: %w", err)
	}
	le := binary.LittleEndian
	taken, done = le.Uint64(head[8:]) == id, le.Uint64(head) == id
	if !done {
		return nil, taken, false, nil
	}
	n := le.Uint32(head[16:])
	if n > MaxAnswer {
		return nil, true, true, fmt.Errorf("%w: an answer of %d bytes", ErrCorrupt, n)
	}
	body = make([]byte, n)
	if err := readFull(r, body, l.Mailbox.Off+answerOff+mailBody); err != nil {
		return nil, true, true, fmt.Errorf("read the answer: %w", err)
	}
	if crc32.ChecksumIEEE(body) != le.Uint32(head[20:]) {
		return nil, true, true, fmt.Errorf("%w: the answer is damaged", ErrCorrupt)
	}
	return body, true, true, nil
}

// Mailbox is the mailbox as the session's kprobe sees it. It is for one goroutine, except
// Posted.
type Mailbox struct {
	m    mem
	at   int64
	last atomic.Uint64 // ID of the request that was seen last
}

// NewMailbox opens the mailbox of the file mapped at b.
func NewMailbox(b []byte, l *Layout) (*Mailbox, error) {
	m, err := newMem(b, l)
	if err != nil {
		return nil, err
	}
	return &Mailbox{m: m, at: l.Mailbox.Off}, nil
}

// Posted reports whether there is a request that Next has not returned yet. It may be called
// concurrently.
func (b *Mailbox) Posted() bool {
	id := b.m.load64(b.at)
	return id != 0 && id != b.last.Load()
}

// Next returns a request that was posted since the last one, or nil. If it is damaged, or of
// another version, the error wraps ErrMail, and the request has its ID, because it needs an
// answer.
func (b *Mailbox) Next() (*Request, error) {
	id := b.m.load64(b.at)
	if id == 0 || id == b.last.Load() {
		return nil, nil
	}
	head := make([]byte, mailBody)
	copy(head, b.m.b[b.at:])
	le := binary.LittleEndian
	version, n, sum := le.Uint32(head[8:]), le.Uint32(head[12:]), le.Uint32(head[16:])
	r := &Request{ID: id, PID: le.Uint32(head[20:])}
	if n <= MaxRequest {
		r.Body = append(r.Body, b.m.b[b.at+mailBody:][:n]...)
	}
	if b.m.load64(b.at) != id {
		return nil, nil // it is being replaced
	}
	b.last.Store(id)
	b.m.store64(b.at+answerOff+8, id)
	switch {
	case version != MailVersion:
		return r, fmt.Errorf("%w: it is of version %d, this kprobe understands %d", ErrMail, version, MailVersion)
	case n > MaxRequest || crc32.ChecksumIEEE(r.Body) != sum:
		return r, fmt.Errorf("%w: it is damaged", ErrMail)
	}
	return r, nil
}

// Answer answers a request. A body larger than MaxAnswer is an error.
func (b *Mailbox) Answer(id uint64, body []byte) error {
	if len(body) > MaxAnswer {
		return fmt.Errorf("%w: an answer of %d bytes, at most %d fit", ErrMail, len(body), MaxAnswer)
	}
	at := b.at + answerOff
	b.m.store64(at, 0)
	b.m.store32(at+16, uint32(len(body)))
	b.m.store32(at+20, crc32.ChecksumIEEE(body))
	copy(b.m.b[at+mailBody:], body)
	b.m.store64(at, id)
	return nil
}
