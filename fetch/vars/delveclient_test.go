package vars

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kprobe/fetch"
	"kprobe/internal/fixture"
)

type delveFunction struct {
	Name string `json:"name"`
}

// delveThread is a thread that stands still.
type delveThread struct {
	ID           int
	PC           uint64
	GoroutineID  int64
	Function     *delveFunction
	Breakpoint   *struct{ ID int } `json:"breakPoint"`
	ReturnValues []delveVar
}

type delveState struct {
	Exited         bool
	NextInProgress bool
	CurrentThread  *delveThread
}

// delve is a headless delve that runs a program.
type delve struct {
	t    *testing.T
	pid  int
	mem  *os.File
	old  bool // it doesn't read what interfaces of today's Go hold, nor closures at their entries
	call func(method string, arg, reply any) error
}

type rpcArg = map[string]any

var delveLoad = rpcArg{"FollowPointers": true, "MaxVariableRecurse": 4, "MaxStringLen": 8192, "MaxArrayValues": 24, "MaxStructFields": -1}

var delveVersion = regexp.MustCompile(`Version: 1\.(\d+)`)

// startDelve has delve run a command, which stands still then.
func startDelve(t *testing.T, command []string) *delve {
	t.Helper()
	args := append([]string{"exec", "--headless", "--api-version=2", "--check-go-version=false", "--listen=127.0.0.1:0", command[0], "--"}, command[1:]...)
	dlv := exec.Command(fixture.NeedTool(t, "dlv"), args...)
	dlv.Env = append(os.Environ(), "HOME="+t.TempDir())
	in, said := fixture.Start(t, dlv)
	_, _ = in.Write([]byte("\n\n\n")) // the program may wait for lines
	address, lines := "", bufio.NewScanner(said)
	for address == "" && lines.Scan() {
		_, address, _ = strings.Cut(lines.Text(), "listening at: ")
	}
	go func() {
		for lines.Scan() {
		}
	}()
	client, err := jsonrpc.Dial("tcp", address)
	if err != nil {
		t.Fatalf("delve at %q: %v", address, err)
	}
	d := &delve{t: t, call: func(method string, arg, reply any) error { return client.Call("RPCServer."+method, arg, reply) }}
	t.Cleanup(func() {
		_ = d.call("Detach", rpcArg{"Kill": true}, &struct{}{})
		client.Close()
	})
	var pid struct{ Pid int }
	d.must("ProcessPid", rpcArg{}, &pid)
	d.pid = pid.Pid
	out, err := exec.Command(dlv.Path, "version").Output()
	if m := delveVersion.FindSubmatch(out); err == nil && m != nil {
		minor, _ := strconv.Atoi(string(m[1]))
		d.old = minor < 25
	}
	if d.mem, err = os.Open(fmt.Sprintf("/proc/%d/mem", d.pid)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.mem.Close() })
	return d
}

func (d *delve) must(method string, arg, reply any) {
	d.t.Helper()
	if err := d.call(method, arg, reply); err != nil {
		d.t.Fatalf("delve's %s: %v", method, err)
	}
}

// command lets the program run on.
func (d *delve) command(name string) (delveState, error) {
	var r struct{ State delveState }
	err := d.call("Command", rpcArg{"name": name, "ReturnInfoLoadConfig": delveLoad}, &r)
	return r.State, err
}

// registers are those of a thread, as a liveStop.
func (d *delve) registers(thread int, bias uint64) *liveStop {
	var r struct {
		Regs []struct{ Name, Value string }
	}
	d.must("ListRegisters", rpcArg{"ThreadID": thread, "IncludeFp": true}, &r)
	s := &liveStop{PID: d.pid, file: d.mem}
	s.Bias, s.GPR, s.XMM = strconv.FormatUint(bias, 10), make([]string, 16), make([][2]string, 16)
	names := strings.Fields("rax rcx rdx rbx rsp rbp rsi rdi r8 r9 r10 r11 r12 r13 r14 r15")
	for _, reg := range r.Regs {
		name := strings.ToLower(reg.Name)
		v, _ := strconv.ParseUint(reg.Value, 0, 64)
		if i := slices.Index(names, name); i >= 0 {
			s.GPR[i] = strconv.FormatUint(v, 10)
		}
		switch n, isXMM := strings.CutPrefix(name, "xmm"); {
		case name == "rip":
			s.PC = strconv.FormatUint(v, 10)
		case name == "fs_base":
			s.FS = strconv.FormatUint(v, 10)
		case isXMM:
			i, _ := strconv.Atoi(n)
			text, _, _ := strings.Cut(strings.TrimPrefix(reg.Value, "0x"), "\t")
			b, err := hex.DecodeString(strings.TrimSpace(text))
			if err != nil || len(b) < 16 {
				d.t.Fatalf("delve's %s is %q", reg.Name, reg.Value)
			}
			b = b[len(b)-16:]
			s.XMM[i] = [2]string{strconv.FormatUint(binary.BigEndian.Uint64(b[8:]), 10), strconv.FormatUint(binary.BigEndian.Uint64(b[:8]), 10)}
		}
	}
	return s
}

// variables are those of a frame, without those that others hide.
func (d *delve) variables(frame int) (list []delveVar, err error) {
	scope := rpcArg{"Scope": rpcArg{"GoroutineID": -1, "Frame": frame}, "Cfg": delveLoad}
	var args struct{ Args []delveVar }
	var locals struct{ Variables []delveVar }
	if err := errors.Join(d.call("ListFunctionArgs", scope, &args), d.call("ListLocalVars", scope, &locals)); err != nil {
		return nil, err
	}
	for _, v := range append(args.Args, locals.Variables...) {
		if v.Flags&(delveShadowed|delveConstant) == 0 && fetch.IsName(strings.TrimPrefix(v.Name, "&")) {
			if d.old {
				v.withoutInterfaces()
			}
			list = append(list, v)
		}
	}
	return list, nil
}

// withoutInterfaces says that what interfaces hold isn't known.
func (v *delveVar) withoutInterfaces() {
	if v.Kind == reflect.Interface {
		v.Unreadable = "an interface"
	}
	for i := range v.Children {
		v.Children[i].withoutInterfaces()
	}
}

// frames are the functions that are inlined at a stop, and the one around those.
func (d *delve) frames(pc uint64) (names []string) {
	var r struct {
		Locations []struct {
			PC       uint64 `json:"pc"`
			Function *delveFunction
		}
	}
	if err := d.call("Stacktrace", rpcArg{"Id": -1, "Depth": 8}, &r); err != nil {
		return nil
	}
	for _, l := range r.Locations {
		if l.PC != pc || l.Function == nil {
			break
		}
		names = append(names, l.Function.Name)
	}
	return names
}

// buildForDelve builds a program that distributions' versions of delve can read, which know DWARF 4 only.
func buildForDelve(t *testing.T, source string) string {
	t.Helper()
	prog := filepath.Join(t.TempDir(), "program")
	build := exec.Command(fixture.NeedTool(t, "go"), "build", "-gcflags=-N -l", "-o", prog, source)
	build.Env = append(os.Environ(), "GOEXPERIMENT=nodwarf5", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return prog
}

// bias is where the program is, counted from its file's addresses.
func (d *delve) bias(prog string) uint64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", d.pid))
	if err != nil {
		d.t.Fatal(err)
	}
	if f, err := elf.Open(prog); err != nil || f.Type != elf.ET_DYN {
		return 0
	}
	lo, _, _ := strings.Cut(string(b), "-")
	v, _ := strconv.ParseUint(lo, 16, 64)
	return v
}
