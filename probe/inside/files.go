package inside

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"kprobe/internal/procfs"
)

// files says what descriptors are of.
type files struct {
	pid     int
	sockets map[string]string // by inode; nil: not read yet
}

// describe says what a descriptor is; "" is not known.
func (f *files) describe(fd int) string {
	if fd < 0 {
		return ""
	}
	name, err := os.Readlink(procfs.Image(f.pid).Path("fd/" + strconv.Itoa(fd)))
	if err != nil {
		return ""
	}
	inode, ok := strings.CutPrefix(name, "socket:[")
	if !ok {
		return name
	}
	if f.sockets == nil {
		f.readSockets()
	}
	if s := f.sockets[strings.TrimSuffix(inode, "]")]; s != "" {
		return s
	}
	return name
}

func (f *files) readSockets() {
	f.sockets = map[string]string{}
	for _, proto := range []string{"tcp", "tcp6", "udp", "udp6", "unix"} {
		for line := range bytes.Lines(procfs.Table(procfs.Image(f.pid).Path("net/" + proto))) {
			w := strings.Fields(string(line))
			switch {
			case proto == "unix" && len(w) >= 7:
				path := ""
				if len(w) >= 8 {
					path = " " + w[7]
				}
				f.sockets[w[6]] = "unix" + path
			case proto != "unix" && len(w) >= 10:
				f.sockets[w[9]] = socket(proto, w[1], w[2], w[3])
			}
		}
	}
}

// socket is a socket's ends, as /proc/net/tcp has them (proc_pid_net(5)).
func socket(proto, local, remote, state string) string {
	text := proto + " " + endpoint(local)
	if proto[:3] == "tcp" && state == "0A" {
		return text + " (listening)"
	}
	if r := endpoint(remote); !strings.HasSuffix(r, ":0") {
		text += "->" + r
	}
	return text
}

// endpoint is an address in the hexadecimal of /proc/net: words of the machine's order.
func endpoint(s string) string {
	host, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	n, err2 := strconv.ParseUint(port, 16, 16)
	if err != nil || err2 != nil || len(b)%4 != 0 {
		return s
	}
	for i := 0; i < len(b); i += 4 {
		b[i], b[i+1], b[i+2], b[i+3] = b[i+3], b[i+2], b[i+1], b[i]
	}
	a, ok := netip.AddrFromSlice(b)
	if !ok {
		return s
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(n)).String()
}
