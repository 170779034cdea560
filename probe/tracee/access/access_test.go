package access

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"kprobe/internal/fixture"
)

func ids(r, e, s string) [3]string { return [3]string{r, e, s} }

// TestWhy walks the whole matrix of what the kernel looks at: user, group, what may
// be dumped, capabilities, user namespace, Yama, kprobe's own seccomp rules, another
// tracer, zombies and threads of the kernel.
func TestWhy(t *testing.T) {
	const all, ptrace, bind = 1<<41 - 1, 1 << capSysPtrace, 1 << 10
	user := Person{UID: ids("1000", "1000", "1000"), GID: ids("1000", "1000", "1000")}
	root := Person{UID: ids("0", "0", "0"), GID: ids("0", "0", "0"), Effective: all, Permitted: all}
	bare := root
	bare.Effective, bare.Permitted = 0, 0
	strong := user
	strong.Permitted = bind | 1<<21
	setuid, setgid, other, group := user, user, user, user
	setuid.UID, setgid.GID = ids("1000", "0", "0"), ids("1000", "5", "5")
	other.UID, group.GID = ids("1001", "1001", "1001"), ids("5", "5", "5")
	able := user
	able.Effective, able.Permitted = ptrace, ptrace
	for _, c := range []struct {
		name   string
		c      Case
		rule   Rule
		reason string // part of it
		remedy string // part of it
	}{
		{"one's own", Case{Asker: user, Asked: user}, 0, "", ""},
		{"root's, by root", Case{Asker: root, Asked: root}, 0, "", ""},
		{"anybody's, by root", Case{Asker: root, Asked: setuid, Hidden: true, Scope: "2"}, 0, "", ""},
		{"anybody's, with the capability", Case{Asker: able, Asked: root, Hidden: true, Scope: "2"}, 0, "", ""},
		{"another user's", Case{Asker: user, Asked: other}, RuleUser, "belongs to user 1001, and kprobe runs as user 1000", "as user 1001, or run kprobe as root"},
		{"root's", Case{Asker: user, Asked: root}, RuleUser, "belongs to user 0", "as root"},
		{"another user's, by root without capabilities", Case{Asker: bare, Asked: user}, RuleUser, "belongs to user 1000", "CAP_SYS_PTRACE: it runs as root without"},
		{"set-user-ID", Case{Asker: user, Asked: setuid, Hidden: true}, RuleUser, "set-user-ID program: it belongs to user 1000 and acts as user 0", "as root"},
		{"set-group-ID", Case{Asker: user, Asked: setgid, Hidden: true}, RuleUser, "set-group-ID program", "as root"},
		{"another group's", Case{Asker: user, Asked: group}, RuleUser, "group 5", "as root"},
		{"may not be dumped", Case{Asker: user, Asked: user, Hidden: true}, RuleDumpable, "PR_SET_DUMPABLE", "as root"},
		{"may not be dumped, root without capabilities", Case{Asker: bare, Asked: bare, Hidden: true}, RuleDumpable, "PR_SET_DUMPABLE", "SYS_PTRACE"},
		{"stronger", Case{Asker: user, Asked: strong}, RuleCaps, "cap_net_bind_service, cap_sys_admin", "as root"},
		{"root's with capabilities, by root without", Case{Asker: bare, Asked: root}, RuleCaps, "cap_chown, cap_dac_override, cap_dac_read_search and 38 more", "SYS_PTRACE"},
		{"as strong", Case{Asker: strong, Asked: strong}, 0, "", ""},
		{"a namespace below, by root", Case{Asker: root, Asked: user, UserNS: Below}, 0, "", ""},
		{"a namespace below, one's own", Case{Asker: user, Asked: user, UserNS: Below, Owns: true, Hidden: true, Scope: "2"}, 0, "", ""},
		{"a namespace below, another's", Case{Asker: user, Asked: user, UserNS: Below}, RuleCaps, "another user namespace", "as root"},
		{"a namespace above, by its root", Case{Asker: root, Asked: root, UserNS: Elsewhere}, RuleCaps, "another user namespace", "outside of its container"},
		{"a namespace above, another user's", Case{Asker: root, Asked: user, UserNS: Elsewhere}, RuleUser, "belongs to user 1000", "outside of its container"},
		{"scope 0", Case{Asker: user, Asked: user, Scope: "0"}, 0, "", ""},
		{"scope 1", Case{Asker: user, Asked: user, Scope: "1"}, RuleScope, "is 1", "-- CMD"},
		{"scope 1, a descendant", Case{Asker: user, Asked: user, Scope: "1", Descends: true}, 0, "", ""},
		{"scope 1, with the capability", Case{Asker: able, Asked: user, Scope: "1"}, 0, "", ""},
		{"scope 1, root without", Case{Asker: bare, Asked: bare, Scope: "1"}, RuleScope, "is 1", "SYS_PTRACE"},
		{"scope 2", Case{Asker: user, Asked: user, Scope: "2", Descends: true}, RuleScope, "is 2", "as root"},
		{"scope 3, even root", Case{Asker: root, Asked: root, Scope: "3", Descends: true}, RuleScope, "nobody", "restart"},
		{"user comes before scope", Case{Asker: user, Asked: other, Scope: "1"}, RuleUser, "user 1001", "as user 1001"},
		{"kprobe's own seccomp", Case{Asker: root, Asked: user, Forbidden: true}, RuleSeccomp, "kprobe itself", "outside"},
		{"seccomp comes before user", Case{Asker: user, Asked: other, Forbidden: true, Denied: true}, RuleSeccomp, "seccomp", "allow ptrace"},
		{"a thread of the kernel", Case{Asker: root, Asked: root, Kernel: true}, RuleKernel, "kernel", "kprobe_events"},
		{"a zombie", Case{Asker: root, Asked: user, Zombie: true, Denied: true}, RuleZombie, "ended", "nothing"},
		{"traced", Case{Asker: user, Asked: user, Tracer: 77}, RuleTraced, "process 77", "end or detach process 77"},
		{"policy", Case{Asker: user, Asked: user, Denied: true}, RulePolicy, "policy", "allow it"},
		{"policy, even root", Case{Asker: root, Asked: root, Denied: true}, RulePolicy, "even to root", "allow it"},
		{"nothing is known of it", Case{Asker: user}, 0, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.c.Why()
			if r == nil {
				if c.rule != 0 {
					t.Errorf("allowed, want rule %d", c.rule)
				}
				return
			}
			if strings.Contains(r.Remedy, "as user 0") {
				t.Errorf("user 0 is not called root: %q", r.Remedy)
			}
			if r.Rule != c.rule || !strings.Contains(r.Reason, c.reason) || !strings.Contains(r.Remedy, c.remedy) {
				t.Errorf("%+v, want rule %d, %q, %q", r, c.rule, c.reason, c.remedy)
			}
		})
	}
}

// TestLook: the kernel agrees with what is made of a real process.
func TestLook(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	fixture.Start(t, cmd)
	c := Look("/proc", os.Getpid(), cmd.Process.Pid)
	if r := c.Why(); r != nil {
		t.Errorf("a child: %+v", r)
	}
	if c.Asked.UID[0] == "" || c.Asker.UID != c.Asked.UID || c.Kernel || c.Zombie || c.Hidden || c.Forbidden {
		t.Errorf("%+v", c)
	}
	if c := Look("/proc", os.Getpid(), 2); os.Getpid() > 2 && c.Asked.UID[0] != "" && !c.Kernel {
		t.Errorf("process 2 is taken for %+v", c)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for c = Look("/proc", os.Getpid(), cmd.Process.Pid); !c.Zombie && c.Asked.UID[0] != ""; {
		c = Look("/proc", os.Getpid(), cmd.Process.Pid)
	}
}

// TestPtraceForbidden: a filter that answers ptrace with an error, and one that
// kills who calls it, are found out by one who lives on.
func TestPtraceForbidden(t *testing.T) {
	if mode := os.Getenv("ACCESS_TEST_SECCOMP"); mode != "" {
		forbidPtrace(t, mode)
		return
	}
	if ptraceForbidden() {
		fixture.Missing(t, "ptrace is forbidden here")
	}
	for _, mode := range []string{"errno", "kill", "other"} {
		cmd := exec.Command("/proc/self/exe", "-test.run", "^TestPtraceForbidden$", "-test.v")
		cmd.Env = append(os.Environ(), "ACCESS_TEST_SECCOMP="+mode)
		out, err := cmd.CombinedOutput()
		want := "forbidden: true, by the case: true"
		if mode == "other" {
			want = "forbidden: false, by the case: false"
		}
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s", mode, err, out)
		}
	}
}
