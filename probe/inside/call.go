package inside

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"kprobe/internal/procfs"
	"kprobe/internal/quote"
	"kprobe/probe/results"
	"kprobe/symbols"
)

// is reports whether a call is one of some.
func is(c *results.SystemCall, names ...string) bool {
	return c != nil && slices.Contains(names, c.Name)
}

// maxText bounds the text of an argument.
const maxText = 256

// call says what a system call is and of what.
func (l *looker) call(at *procfs.Position) *results.SystemCall {
	c := &results.SystemCall{Nr: uint64(at.Nr), Name: callName(uint64(at.Nr)), Values: at.Args}
	if c.Name == "" {
		c.Name = "syscall_" + strconv.FormatInt(at.Nr, 10)
	}
	params := strings.Fields(callParams[c.Name])
	if is(c, "futex") && !futexWaits(at.Args[1]) {
		params = params[:min(len(params), 3)]
	}
	var parts []string
	for i, p := range params {
		name, kind, _ := strings.Cut(p, ":")
		text := ""
		if kind == "sockaddr" {
			text = l.sockaddr(at.Args[i], at.Args[i+1])
		} else {
			text = l.argument(kind, at.Args[i])
		}
		parts = append(parts, name+"="+text)
	}
	c.Args = strings.Join(parts, ", ")
	return c
}

// argument is the text of an argument.
func (l *looker) argument(kind string, v uint64) string {
	switch kind {
	case "fd":
		n := int32(v)
		if n == -100 { // AT_FDCWD
			return "."
		}
		text := strconv.Itoa(int(n))
		if what := l.files.describe(int(n)); what != "" {
			text += " " + what
		}
		return text
	case "num":
		return strconv.FormatInt(int64(int32(v)), 10)
	case "uint":
		return strconv.FormatUint(v, 10)
	case "ms":
		if int32(v) < 0 {
			return "none"
		}
		return (time.Duration(int32(v)) * time.Millisecond).String()
	case "time":
		return l.timespec(v)
	case "text":
		return l.text(v)
	case "futex":
		return futexOp(v)
	case "flock":
		return flag(v&^4, map[uint64]string{1: "LOCK_SH", 2: "LOCK_EX", 8: "LOCK_UN"})
	case "fcntl":
		return flag(v, map[uint64]string{7: "F_SETLKW", 38: "F_OFD_SETLKW"})
	}
	return "0x" + strconv.FormatUint(v, 16)
}

func flag(v uint64, names map[uint64]string) string {
	if n := names[v]; n != "" {
		return n
	}
	return strconv.FormatUint(v, 10)
}

func (l *looker) read(at uint64, n int) []byte {
	b := make([]byte, n)
	got, _ := Memory(l.pid).ReadMemory(b, symbols.Addr(at))
	return b[:got]
}

func (l *looker) timespec(at uint64) string {
	if at == 0 {
		return "none"
	}
	b := l.read(at, 16)
	if len(b) < 16 {
		return "(fault)"
	}
	sec, nsec := int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))
	if sec < 0 || sec > 1<<32 || nsec < 0 || nsec >= 1e9 {
		return fmt.Sprintf("{%d, %d}", sec, nsec)
	}
	return (time.Duration(sec)*time.Second + time.Duration(nsec)).String()
}

// text is the text at an address, quoted; what was read is of the program's making.
func (l *looker) text(at uint64) string {
	if at == 0 {
		return "NULL"
	}
	var b []byte
	for len(b) < maxText {
		part := l.read(at+uint64(len(b)), min(maxText-len(b), int(4096-(at+uint64(len(b)))&4095)))
		if len(part) == 0 {
			break
		}
		b = append(b, part...)
		if i := bytes.IndexByte(b, 0); i >= 0 {
			return string(quote.AppendText(nil, b[:i]))
		}
	}
	if len(b) == 0 {
		return "(fault)"
	}
	return string(quote.AppendText(nil, b)) + "…"
}

// mostAddress is the size of the largest address of a socket (struct sockaddr_un), nameAt
// where that has its name.
const (
	mostAddress = 110
	nameAt      = 2
)

// sockaddr is where a connection goes to (sockaddr(3type)), by an address of size bytes.
func (l *looker) sockaddr(at, size uint64) string {
	b := l.read(at, int(min(uint64(uint32(size)), mostAddress)))
	if len(b) < nameAt {
		return "(fault)"
	}
	family := binary.LittleEndian.Uint16(b)
	if family == 1 {
		return "unix " + unixName(b[nameAt:])
	}
	if len(b) < 8 {
		return "family " + strconv.Itoa(int(family))
	}
	port := binary.BigEndian.Uint16(b[2:])
	switch {
	case family == 2:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port).String()
	case family == 10 && len(b) >= 24:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])), port).String()
	}
	return "family " + strconv.Itoa(int(family))
}

// unixName is the name in an address of a local socket: a path, or what is behind an @,
// all bytes to the address's end, where it is none in the file system (unix(7)).
func unixName(b []byte) string {
	if len(b) > 0 && b[0] == 0 {
		text := quote.AppendText(nil, b[1:])
		return "@" + string(text[1:len(text)-1])
	}
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(quote.AppendText(nil, b))
}

// The operations of futex(2).
const (
	futexWait          = 0
	futexLockPI        = 6
	futexWaitBitset    = 9
	futexWaitRequeuePI = 11
	futexLockPI2       = 13
	futexFlags         = 128 | 256 // private, by the real-time clock
)

func futexWaits(op uint64) bool {
	switch op &^ futexFlags {
	case futexWait, futexLockPI, futexWaitBitset, futexWaitRequeuePI, futexLockPI2:
		return true
	}
	return false
}

func futexOp(op uint64) string {
	names := map[uint64]string{
		0: "FUTEX_WAIT", 1: "FUTEX_WAKE", 3: "FUTEX_REQUEUE", 4: "FUTEX_CMP_REQUEUE", 5: "FUTEX_WAKE_OP", 6: "FUTEX_LOCK_PI",
		7: "FUTEX_UNLOCK_PI", 8: "FUTEX_TRYLOCK_PI", 9: "FUTEX_WAIT_BITSET", 10: "FUTEX_WAKE_BITSET", 11: "FUTEX_WAIT_REQUEUE_PI", 13: "FUTEX_LOCK_PI2",
	}
	return flag(op&^futexFlags, names)
}
