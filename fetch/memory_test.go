package fetch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"kprobe/symbols"
)

var errUnmapped = errors.New("unmapped")

// fakeMemory is a memory of single pages, as a process's is.
type fakeMemory map[uint64]*[pageSize]byte

func (m fakeMemory) ReadMemory(b []byte, at symbols.Addr) (int, error) {
	for n := 0; n < len(b); {
		page := m[(uint64(at)+uint64(n))/pageSize]
		if page == nil {
			// What lies behind n is unspecified: make it visible.
			for i := n; i < len(b); i++ {
				b[i] = 0xee
			}
			return n, errUnmapped
		}
		n += copy(b[n:], page[(uint64(at)+uint64(n))%pageSize:])
	}
	return len(b), nil
}

// put writes b at an address, mapping pages as needed.
func (m fakeMemory) put(at uint64, b []byte) {
	for len(b) > 0 {
		page := m[at/pageSize]
		if page == nil {
			page = new([pageSize]byte)
			m[at/pageSize] = page
		}
		n := copy(page[at%pageSize:], b)
		b = b[n:]
		at += uint64(n)
	}
}

func (m fakeMemory) put64(at, v uint64) {
	m.put(at, binary.LittleEndian.AppendUint64(nil, v))
}

// fakeEnv is a process with a few names.
type fakeEnv struct {
	data    map[string]symbols.Addr // by MOD:SYM
	vars    map[string]Variable
	params  []Variable
	inside  bool // the place is no entry
	noDebug bool
}

var errNoName = errors.New("no such name")

func (e *fakeEnv) AtEntry() bool { return !e.inside }

func (e *fakeEnv) Data(module, symbol string) (symbols.Addr, uint64, error) {
	if a, ok := e.data[module+":"+symbol]; ok {
		return a, 0x100, nil
	}
	return 0, 0, errNoName
}

func (e *fakeEnv) FileOffset(off symbols.Off) (symbols.Addr, error) {
	if off >= 0x1000 {
		return 0, errNoName
	}
	return 0x400000 + symbols.Addr(off), nil
}

func (e *fakeEnv) Variable(text string) (Variable, error) {
	if e.noDebug {
		return Variable{}, ErrNoDebugInfo
	}
	if v, ok := e.vars[text]; ok {
		return v, nil
	}
	before, field, _ := strings.Cut(text, "->")
	if _, ok := e.vars[before]; ok && field == "nope" {
		return Variable{}, fmt.Errorf("%s: %w", text, &FieldError{Code: NoBTFField, At: len(before) + 2, Err: errNoName})
	}
	return Variable{}, errNoName
}

func (e *fakeEnv) Parameters() ([]Variable, error) {
	if e.noDebug {
		return nil, ErrNoDebugInfo
	}
	return e.params, nil
}

func (e *fakeEnv) SymbolAt(a symbols.Addr) (string, uint64, uint64, bool) {
	if a >= 0x1000 && a < 0x1100 {
		return "work", uint64(a) - 0x1000, 0x100, true
	}
	return "", 0, 0, false
}
