package inside

import (
	"os"
	"runtime"
	"testing"
	"unsafe"
)

// TestSockaddr reads addresses of sockets: a local one's name has zero bytes in it where it is
// none in the file system, and ends where the address does.
func TestSockaddr(t *testing.T) {
	for _, c := range []struct {
		address string
		size    int
		want    string
	}{
		{"\x02\x00\x1f\x90\x7f\x00\x00\x01", 16, "127.0.0.1:8080"},
		{"\x0a\x00\x1f\x90\x00\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01", 28, "[::1]:8080"},
		{"\x01\x00/run/x\x00rest", 110, `unix "/run/x"`},
		{"\x01\x00/run/x", 8, `unix "/run/x"`},
		{"\x01\x00\x00name", 7, "unix @name"},
		{"\x01\x00\x00na\x00me\x00\x00behind", 9, `unix @na\x00me\x00`},
		{"\x01\x00\x00a\"b", 6, `unix @a\"b`},
		{"\x01\x00", 2, `unix ""`},
		{"\x10\x00\x00\x00\x05\x00\x00\x00", 12, "family 16"},
		{"\x10\x00", 2, "family 16"},
		{"\x01\x00\x00name", 1, "(fault)"},
	} {
		b := make([]byte, 128)
		copy(b, c.address)
		l := &looker{pid: os.Getpid()}
		if got := l.sockaddr(uint64(uintptr(unsafe.Pointer(&b[0]))), uint64(c.size)); got != c.want {
			t.Errorf("%q of %d bytes is %q, want %q", c.address, c.size, got, c.want)
		}
		runtime.KeepAlive(b)
	}
	l := &looker{pid: os.Getpid()}
	if got := l.sockaddr(1, 16); got != "(fault)" {
		t.Errorf("no memory is %q", got)
	}
}
