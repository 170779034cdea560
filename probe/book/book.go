// Package book is the description that a memory file carries for readers without the session
// that armed its probes: another kprobe, later, or on another machine. It says to which process
// and files the hits belong, and how the records of each probe are laid out.
//
// It is JSON after a head of twelve bytes: its length and its CRC-32C, u32, and a u32 that is 0
// while the book is being written. The program can change its contents: a reader checks them,
// and believes nothing that could harm itself.
package book

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"kprobe/fetch"
	"kprobe/symbols"
)

// ErrCorrupt is wrapped by errors of a book that no session writes, ErrNone says that
// there is none.
var (
	ErrCorrupt = errors.New("the description of the probes is damaged")
	ErrNone    = errors.New("there is no description of the probes")
)

// Book is what it says.
type Book struct {
	PID     int      `json:"pid"` // as the kprobe that armed saw it
	Start   uint64   `json:"start"`
	Comm    string   `json:"comm"`
	Command []string `json:"command,omitempty"`
	Kprobe  string   `json:"kprobe,omitempty"`
	Host    string   `json:"host,omitempty"`
	Boot    string   `json:"boot,omitempty"`
	Mono    uint64   `json:"mono"` // when it was written, CLOCK_MONOTONIC, ns
	Wall    int64    `json:"wall"` // the same moment, in ns since 1970
	// Locked says why the hits of its jumps take locked instructions; "": they don't.
	Locked  string   `json:"locked,omitempty"`
	Modules []Module `json:"modules"`
	Layouts []Layout `json:"layouts"`
	Probes  []Probe  `json:"probes"`
}

// Module is a file that was mapped.
type Module struct {
	Path    string            `json:"path"`
	BuildID string            `json:"buildID,omitempty"`
	Main    bool              `json:"main,omitempty"`
	Bias    uint64            `json:"bias"`
	Maps    []symbols.Mapping `json:"maps"`
}

// Layout is how records look (fetch.Program.Portable).
type Layout = json.RawMessage

// Probe is a probe at a place.
type Probe struct {
	ID     uint32 `json:"id"`
	Group  string `json:"group"`
	Event  string `json:"event"`
	Return bool   `json:"return,omitempty"`
	Def    string `json:"def"`
	Module string `json:"module,omitempty"` // that the definition was pinned to
	Layout int    `json:"layout"`           // index of Layouts
	Times  []int  `json:"times,omitempty"`  // offsets of values that are raw time stamps
	Addr   uint64 `json:"addr"`
	Func   string `json:"func,omitempty"`   // of returns
	Symbol string `json:"symbol,omitempty"` // what covers Addr, and its start and size
	Off    uint64 `json:"off,omitempty"`
	Size   uint64 `json:"size,omitempty"`
	How    string `json:"how,omitempty"` // its tactic
	// Semaphore is where the counter of a statically defined probe is that was raised for it; 0: nowhere.
	Semaphore uint64 `json:"semaphore,omitempty"`
}

// Name is GROUP/EVENT.
func (p *Probe) Name() string { return p.Group + "/" + p.Event }

// HeadSize is the bytes before the text.
const HeadSize = 12

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode gives a book's bytes, with the head.
func (b *Book) Encode() ([]byte, error) {
	text, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("write the description of the probes: %w", err)
	}
	out := make([]byte, HeadSize, HeadSize+len(text))
	le := binary.LittleEndian
	le.PutUint32(out, uint32(len(text)))
	le.PutUint32(out[4:], crc32.Checksum(text, castagnoli))
	le.PutUint32(out[8:], 1)
	return append(out, text...), nil
}

// Length gives the bytes of a book, with its head, of which head is the beginning.
func Length(head []byte) (int, error) {
	if len(head) < HeadSize || binary.LittleEndian.Uint32(head[8:]) == 0 {
		return 0, ErrNone
	}
	return HeadSize + int(binary.LittleEndian.Uint32(head)), nil
}

// Read reads a book from where there is room for one.
func Read(r *io.SectionReader) (*Book, error) {
	head := make([]byte, HeadSize)
	if r.Size() < HeadSize {
		return nil, ErrNone
	}
	if _, err := r.ReadAt(head, 0); err != nil {
		return nil, fmt.Errorf("read the description of the probes: %w", err)
	}
	n, err := Length(head)
	if err != nil {
		return nil, err
	}
	if int64(n) > r.Size() {
		return nil, ErrCorrupt
	}
	text := make([]byte, n)
	if _, err := r.ReadAt(text, 0); err != nil {
		return nil, fmt.Errorf("read the description of the probes: %w", err)
	}
	return Decode(text)
}

// The most that a book may hold.
const (
	mostModules = 1 << 14
	mostMaps    = 1 << 16
)

// Decode reads a book.
func Decode(b []byte) (*Book, error) {
	n, err := Length(b)
	if err != nil {
		return nil, err
	}
	if n > len(b) || crc32.Checksum(b[HeadSize:n], castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return nil, ErrCorrupt
	}
	var out Book
	if err := json.Unmarshal(b[HeadSize:n], &out); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	maps := 0
	for i := range out.Modules {
		maps += len(out.Modules[i].Maps)
	}
	if len(out.Modules) > mostModules || maps > mostMaps {
		return nil, fmt.Errorf("%w: %d files", ErrCorrupt, len(out.Modules))
	}
	for i := range out.Probes {
		if l := out.Probes[i].Layout; l < 0 || l >= len(out.Layouts) {
			return nil, fmt.Errorf("%w: a probe without a layout", ErrCorrupt)
		}
	}
	return &out, nil
}

// Programs reads the layouts.
func (b *Book) Programs() ([]*fetch.Program, error) {
	var out []*fetch.Program
	for i := range b.Layouts {
		p, err := fetch.FromPortable(b.Layouts[i])
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		out = append(out, p)
	}
	return out, nil
}
