package inside

import (
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/probe/results"
)

func TestExecStart(t *testing.T) {
	for text, want := range map[string]uint64{
		"head (1, #threads: 1)\n---\nse.exec_start      :        657385.506588\nse.vruntime : 1\n": 657385506588,
		"\nse.exec_start : 0.000001":  1,
		"\nse.exec_start : -1.000001": 0,
		"\nse.exec_start : 5":         0,
		"se.vruntime : 1":             0,
		"":                            0,
	} {
		if got := execStart([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestCallName(t *testing.T) {
	for nr, want := range map[uint64]string{
		unix.SYS_READ: "read", unix.SYS_FUTEX: "futex", unix.SYS_EPOLL_WAIT: "epoll_wait", unix.SYS_RSEQ: "rseq",
		unix.SYS_PIDFD_SEND_SIGNAL: "pidfd_send_signal", unix.SYS_FUTEX_WAITV: "futex_waitv", unix.SYS_IO_URING_ENTER: "io_uring_enter",
		unix.SYS_IO_PGETEVENTS: "io_pgetevents", unix.SYS_MSEAL: "mseal", 400: "", 1 << 40: "",
	} {
		if got := callName(nr); got != want {
			t.Errorf("%d: %q, want %q", nr, got, want)
		}
	}
	for name := range callParams {
		found := false
		for nr := range uint64(512) {
			found = found || callName(nr) == name
		}
		if !found {
			t.Errorf("no system call %q", name)
		}
	}
}

func TestSocket(t *testing.T) {
	for _, c := range [][5]string{
		{"tcp", "0100007F:1CEB", "0200007F:A163", "01", "tcp 127.0.0.1:7403->127.0.0.2:41315"},
		{"tcp", "00000000:0050", "00000000:0000", "0A", "tcp 0.0.0.0:80 (listening)"},
		{"tcp6", "00000000000000000000000001000000:0016", "0000000000000000FFFF00000100007F:0017", "01", "tcp6 [::1]:22->127.0.0.1:23"},
		{"udp", "0100007F:0035", "00000000:0000", "07", "udp 127.0.0.1:53"},
		{"udp", "zz:1", "yy:0", "07", "udp zz:1"},
	} {
		if got := socket(c[0], c[1], c[2], c[3]); got != c[4] {
			t.Errorf("%v: %q", c, got)
		}
	}
}

func TestDeadlock(t *testing.T) {
	thread := func(tid, other int) *results.InsideThread {
		return &results.InsideThread{TID: tid, Waits: &results.Waiting{TID: other}}
	}
	if got := deadlock([]*results.InsideThread{thread(1, 2), thread(2, 3), thread(3, 2), {TID: 4}}); len(got) != 2 || got[0] != 2 || got[1] != 3 {
		t.Errorf("%v", got)
	}
	if got := deadlock([]*results.InsideThread{thread(1, 2), thread(2, 3), {TID: 3}}); got != nil {
		t.Errorf("%v", got)
	}
}
