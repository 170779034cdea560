//go:build linux && amd64

package tracee

import (
	"context"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/fixture"
)

func known(v uint64) *uint64 { return &v }

// TestRulesPass judges calls by filters as programs write them.
func TestRulesPass(t *testing.T) {
	ld := func(off uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
	}
	jump := func(op uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | op, K: k, Jt: yes, Jf: no}
	}
	stmt := func(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }
	allow, kill := stmt(unix.BPF_RET, unix.SECCOMP_RET_ALLOW), stmt(unix.BPF_RET, 0x80000000)
	const nr, arch, ip, arg0, arg1, arg3 = 0, 4, 8, 16, 24, 40
	call := &Call{Number: 14, Args: [6]*uint64{known(1<<64 - 1), nil, known(0), known(8)}}
	for _, tt := range []struct {
		name  string
		rules []unix.SockFilter
		want  bool
	}{
		{"all", []unix.SockFilter{allow}, true},
		{"none", []unix.SockFilter{kill}, false},
		{"noted", []unix.SockFilter{stmt(unix.BPF_RET, unix.SECCOMP_RET_LOG)}, true},
		{"an error", []unix.SockFilter{stmt(unix.BPF_RET, 0x50001)}, false},
		{"this one", []unix.SockFilter{ld(arch), jump(unix.BPF_JEQ, unix.AUDIT_ARCH_X86_64, 0, 2), ld(nr), jump(unix.BPF_JEQ, 14, 1, 0), kill, allow}, true},
		{"others", []unix.SockFilter{ld(nr), jump(unix.BPF_JEQ, 14, 0, 1), kill, allow}, false},
		{"a range", []unix.SockFilter{ld(nr), jump(unix.BPF_JGE, 15, 2, 0), jump(unix.BPF_JGT, 13, 0, 1), allow, kill}, true},
		{"by an argument that is known", []unix.SockFilter{ld(arg0), jump(unix.BPF_JEQ, 0xffffffff, 0, 1), allow, kill}, true},
		{"by another", []unix.SockFilter{ld(arg3), jump(unix.BPF_JSET, 8, 1, 0), allow, kill}, false},
		{"by one that isn't", []unix.SockFilter{ld(arg1), jump(unix.BPF_JEQ, 7, 0, 0), allow}, false},
		{"by the place", []unix.SockFilter{ld(ip), jump(unix.BPF_JGT, 7, 0, 0), allow}, false},
		{"not by what isn't reached", []unix.SockFilter{ld(nr), jump(unix.BPF_JEQ, 14, 2, 0), ld(arg1), kill, allow}, true},
		{"masked", []unix.SockFilter{ld(nr), stmt(unix.BPF_ALU|unix.BPF_AND, 0xf0), stmt(unix.BPF_ST, 3), stmt(unix.BPF_LDX|unix.BPF_MEM, 3), stmt(unix.BPF_MISC|unix.BPF_TXA, 0), jump(unix.BPF_JEQ, 0, 0, 1), allow, kill}, true},
		{"by a register", []unix.SockFilter{stmt(unix.BPF_LDX|unix.BPF_IMM, 14), ld(nr), jump(unix.BPF_JEQ|unix.BPF_X, 0, 0, 1), allow, kill}, true},
		{"far", []unix.SockFilter{stmt(unix.BPF_JMP|unix.BPF_JA, 1), kill, allow}, true},
		{"by a result", []unix.SockFilter{stmt(unix.BPF_LD|unix.BPF_IMM, unix.SECCOMP_RET_ALLOW), stmt(unix.BPF_RET|unix.BPF_A, 0)}, true},
		{"beyond the end", []unix.SockFilter{stmt(unix.BPF_JMP|unix.BPF_JA, 1<<31), allow}, false},
		{"no end", []unix.SockFilter{ld(nr)}, false},
		{"no such word", []unix.SockFilter{ld(62), allow}, false},
		{"divided by nothing", []unix.SockFilter{stmt(unix.BPF_ALU|unix.BPF_DIV, 0), allow}, false},
	} {
		if got := call.passes(tt.rules); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// TestRulesRead asks the rules that a process is under: those of tracee_seccomp.c forbid
// mmap and memfd_create.
func TestRulesRead(t *testing.T) {
	if os.Geteuid() != 0 {
		fixture.Missing(t, "root")
	}
	for _, tt := range []struct {
		mode           string
		mask, map_, my bool // rt_sigprocmask, mmap, mmap that kprobe makes
	}{
		{"plain", true, true, true}, {"errno", true, false, false}, {"kill", true, false, false}, {"strict", false, false, false},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			g := spawn(t, fixture.Build(t, "tracee_seccomp.c", "-O1", "-static"), tt.mode)
			g.line()
			tr := newTracer(t)
			p := attach(t, tr, g.pid)
			err := p.WithStopped(context.Background(), func(ts []*Thread) error {
				for _, th := range ts {
					mask := &Call{Number: unix.SYS_RT_SIGPROCMASK, Args: [6]*uint64{known(1<<64 - 1)}}
					for call, want := range map[*Call]bool{mask: tt.mask, {Number: unix.SYS_MMAP}: tt.map_} {
						if got := th.Allows(call, false); got != want {
							t.Errorf("call %d: %v", call.Number, got)
						}
					}
					if got := th.Allows(&Call{Number: unix.SYS_MMAP}, true); got != tt.my {
						t.Errorf("mmap that kprobe makes, too: %v", got)
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
