/* What a detour may not take for granted.
 *
 *   hazard_assumes MODE
 *
 * prints "ready", works after a line, prints "done ..." and ends with status 7
 * after another line. What it prints is the same whether it is traced or not.
 *
 *   fs0 fsnone fszero fsjunk   the base of fs is 0, leads to memory that can't be
 *                              read, to zeros, to something that is no control block
 *   tsc                        rdtsc is forbidden (PR_SET_TSC)
 *   forbids                    says whether rdtsc faults where it is forbidden, and
 *                              ends; on some virtual machines it doesn't
 *   strict                     seccomp's strict mode
 *   blocked                    fs0 and tsc with SIGSEGV blocked
 *   ignored                    and with SIGSEGV ignored
 *   clone                      threads of raw clone with their parent's control block
 *   align                      alignment is checked (EFLAGS.AC)
 *   protect unmap              memory of memfds that are mapped shared is made
 *                              unreadable, or unmapped
 *   odds                       fs0 and tsc again and again, until a line comes
 *   guard                      stacks that end at each distance below a call
 *   guards                     the same again and again, until a line comes
 *   bare                       the same with an alternate stack but no handler, and
 *                              only where there is room
 *   stray                      a stack pointer that is none
 */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define N 200

long sys(long n, long a, long b, long c);
__attribute__((noipa)) long step(long i, const char *text)
{
	return (5 * i + 3) ^ 0x55;
}

long aligned(long n, const char *text);
long inside(long fs, long n, const char *text);
long at(void *stack, long (*f)(long, const char *), long a, const char *text);
extern char came_back[];
long leaf(long, const char *), hopper(long, const char *), pusher(long, const char *), caller(long, const char *), toucher(long, const char *);
long stray(long sp, long v), stray_at(void);

/* No function here uses the stack but as it says, or fs. */
__asm__(
	".text\n"
	".globl sys, inside, at, came_back, leaf, hopper, pusher, caller, toucher, stray\n"
	".type sys, @function\nsys: mov %rdi, %rax; mov %rsi, %rdi; mov %rdx, %rsi; mov %rcx, %rdx; syscall; ret\n.size sys, .-sys\n"
	/* fs is set to another base by wrfsbase for n calls of step */
	".type inside, @function\ninside: push %rbx; push %rbp; push %r12; push %r13; push %r14\n"
	"  mov %rsi, %rbx; mov %rdx, %r12; xor %ebp, %ebp; rdfsbase %r13; wrfsbase %rdi\n"
	"1: mov %rbx, %rdi; mov %r12, %rsi; call step; add %rax, %rbp; dec %rbx; jnz 1b\n"
	"  wrfsbase %r13; mov %rbp, %rax; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx; ret\n.size inside, .-inside\n"
	".globl aligned\n.type aligned, @function\naligned: push %rbx; push %rbp; push %r12; sub $16, %rsp\n"
	"  mov %rdi, %rbx; mov %rsi, %r12; xor %ebp, %ebp; pushf; orq $0x40000, (%rsp); popf\n"
	"1: mov %rbx, %rdi; mov %r12, %rsi; call step; add %rax, %rbp; dec %rbx; jnz 1b\n"
	"  pushf; andq $~0x40000, (%rsp); popf; mov %rbp, %rax; add $16, %rsp; pop %r12; pop %rbp; pop %rbx; ret\n.size aligned, .-aligned\n"
	/* f is called on a stack, with registers that are known */
	".type at, @function\nat: push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
	"  mov %rsp, kept(%rip); mov %rdi, %rsp; mov %rsi, %r11; mov %rdx, %rdi; mov %rcx, %rsi\n"
	"  mov $11, %eax; mov $12, %ebx; mov $13, %ecx; mov $14, %edx; mov $15, %ebp; mov $16, %r8d; mov $17, %r9d; mov $18, %r10d\n"
	"  mov $19, %r12d; mov $20, %r13d; mov $21, %r14d; mov $22, %r15d; cmp %eax, %ebx\n"
	"  call *%r11\n"
	"came_back: mov kept(%rip), %rsp; pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx; ret\n.size at, .-at\n"
	".type leaf, @function\nleaf: lea 3(%rdi,%rdi,4), %rax; xor %rcx, %rax; add %r15, %rax; sub %r8, %rax; ret\n.size leaf, .-leaf\n"
	".type hopper, @function\nhopper: lea 3(%rdi), %rdi; add $4, %rdi; jmp leaf\n.size hopper, .-hopper\n"
	".type pusher, @function\npusher: push %rbp; push %r12; lea 3(%rdi), %rax; add %r12, %rax; pop %r12; pop %rbp; ret\n.size pusher, .-pusher\n"
	".type caller, @function\ncaller: call leaf; add $7, %rax; xor $0x11, %rax; ret\n.size caller, .-caller\n"
	".type toucher, @function\ntoucher: lea -200(%rsp), %rsp; mov %rdi, 8(%rsp); add $9, %rdi; mov %rdi, %rax; add 8(%rsp), %rax; lea 200(%rsp), %rsp; ret\n.size toucher, .-toucher\n"
	".type stray, @function\nstray: mov %rsp, %rdx; mov %rdi, %rsp; nop; nop; nop; lea 5(%rsi), %rax; lea 7(%rax,%rsi), %rax; nop; nop; nop; mov %rdx, %rsp; add $1, %rax; ret\n.size stray, .-stray\n"
	".local kept\n.comm kept,8,8\n");

static void say(const char *s) { sys(SYS_write, 1, (long)s, (long)strlen(s)); }

static void wait_line(void)
{
	char c;
	while (sys(SYS_read, 0, (long)&c, 1) == 1 && c != '\n')
		;
}

static uint64_t hash = 14695981039346656037ull;
static long faults;
static int bare;
static char *low; /* the end of the stack that is used */

static void mix(uint64_t v)
{
	for (int i = 0; i < 64; i += 8) {
		hash ^= v >> i & 255;
		hash *= 1099511628211ull;
	}
}

/* What a program's own handler sees of an overflow, and its way out. */
static void overflow(int sig, siginfo_t *si, void *p)
{
	ucontext_t *uc = p;
	greg_t *g = uc->uc_mcontext.gregs;
	faults++;
	mix(sig);
	mix(si->si_code);
	mix((char *)si->si_addr - low);
	mix(g[REG_RIP] - (greg_t)leaf);
	mix(g[REG_RSP] - (greg_t)low);
	for (int r = REG_R8; r <= REG_RCX; r++)
		if (r != REG_R11 && r != REG_RSI)
			mix(g[r]);
	mix(g[REG_EFL] & 0xcd5);
	if (getenv("VERBOSE"))
		dprintf(2, "sig %d code %d addr %+ld pc %+ld sp %+ld\n", sig, si->si_code, (long)((char *)si->si_addr - low), (long)(g[REG_RIP] - (greg_t)leaf), (long)(g[REG_RSP] - (greg_t)low));
	g[REG_RIP] = (greg_t)came_back;
}

static void handle(void)
{
	static char alt[65536];
	stack_t ss = {.ss_sp = alt, .ss_size = sizeof alt};
	struct sigaction sa = {.sa_sigaction = overflow, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	sigaltstack(&ss, 0);
	if (bare)
		return;
	sigaction(SIGSEGV, &sa, 0);
	sigaction(SIGBUS, &sa, 0);
}

static long work_guard(void)
{
	static char *m;
	if (!m) {
		m = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		mprotect(m, 1 << 15, PROT_NONE);
	}
	low = m + (1 << 15);
	long sum = 0;
	for (long d = bare ? 216 : 0; d < 2600; d += 8) {
		long lower = bare ? 208 : 0, some = bare ? 192 : 0;
		sum += at(low + d - lower, leaf, d, "a text");
		sum += at(low + d - lower, hopper, d, "a text");
		sum += at(low + d - some, pusher, d, "a text");
		sum += at(low + d - some, caller, d, "a text");
		sum += at(low + d, toucher, d, "a text");
		sum &= 0xffffffff;
	}
	return sum;
}

static const char *work_guards(void)
{
	long sum = 0;
	uint64_t first = 0, start = hash;
	struct pollfd in = {.fd = 0, .events = POLLIN};
	for (long n = 0; !poll(&in, 1, 0); n++) {
		hash = start;
		long s = work_guard();
		if (n && (s != sum || hash != first))
			return "done differently\n";
		sum = s, first = hash;
	}
	return "done the same\n";
}

static void odd(int sig, siginfo_t *si, void *p)
{
	ucontext_t *uc = p;
	faults++;
	mix(sig);
	(void)si;
	uc->uc_mcontext.gregs[REG_RIP] = (greg_t)came_back;
}

static const char constant[8192] = "constant";
static char variable[1 << 16] __attribute__((aligned(4096)));

static long work_stray(void)
{
	memset(variable, 0x5a, sizeof variable);
	long sum = 0;
	long sps[] = {0, 8, 64, 4096, -8, -4096, (long)0x8000000000000000, 0x1234567812345678, (long)(constant + 4096), (long)(variable + 32768), (long)(variable + 32771), (long)step, 0x7fffffffffff};
	if (__builtin_cpu_is("amd")) // returning from the kernel to a stack pointer that isn't canonical is a fault there
		for (unsigned i = 0; i < sizeof sps / sizeof *sps; i++)
			sps[i] = sps[i] << 16 >> 16;
	for (int k = 0; k < 20; k++)
		for (unsigned i = 0; i < sizeof sps / sizeof *sps; i++)
			sum += stray(sps[i], k);
	for (unsigned i = 0; i < sizeof variable; i++)
		mix(variable[i]);
	return sum;
}

static void take_away(int unmap)
{
	char line[500];
	FILE *f = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, f)) {
		unsigned long lo, hi;
		char prot[8];
		if (!strstr(line, "memfd:") || sscanf(line, "%lx-%lx %7s", &lo, &hi, prot) != 3 || prot[3] != 's' || prot[2] == 'x')
			continue;
		if (unmap)
			munmap((void *)lo, hi - lo);
		else
			mprotect((void *)lo, hi - lo, PROT_NONE);
	}
	fclose(f);
}

static const char *work_odds(void)
{
	struct pollfd in = {.fd = 0, .events = POLLIN};
	long sum = 0;
	for (long n = 0; !poll(&in, 1, 0); n++) {
		prctl(PR_SET_TSC, n & 1 ? PR_TSC_SIGSEGV : PR_TSC_ENABLE);
		long s = n & 1 ? inside(0, N, "a text") : n & 2 ? inside((long)&in, N, "a text") : inside((long)__builtin_thread_pointer(), N, "a text");
		if (n && s != sum)
			return "done differently\n";
		sum = s;
	}
	prctl(PR_SET_TSC, PR_TSC_ENABLE);
	return "done the same\n";
}

static int cloned(void *p)
{
	long i, sum = 0;
	for (i = 0; i < N; i++)
		sum += step(i, "of a clone");
	*(volatile long *)p = sum + sys(SYS_gettid, 0, 0, 0) - sys(SYS_gettid, 0, 0, 0);
	sys(SYS_exit, 0, 0, 0);
	return 0;
}

static long work_clone(void)
{
	static volatile long sums[4];
	long sum = 0;
	for (int i = 0; i < 4; i++) {
		char *m = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		clone(cloned, m + 65536, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM, (void *)&sums[i]);
		for (long k = 0; k < N; k++)
			sum += step(k, "of the parent");
	}
	for (int i = 0; i < 4; i++) {
		while (!sums[i])
			usleep(1000);
		sum += sums[i];
	}
	return sum;
}

static const char *state(void)
{
	static char s[80];
	struct sigaction now;
	sigset_t set;
	sigaction(SIGSEGV, 0, &now);
	sigprocmask(0, 0, &set);
	snprintf(s, sizeof s, "%s %s", now.sa_handler == SIG_DFL ? "default" : "its own", sigismember(&set, SIGSEGV) ? "blocked" : "open");
	return s;
}

static void faulted(int sig)
{
	(void)sig;
	_exit(1);
}

/* forbids reports whether this machine keeps to PR_TSC_SIGSEGV. */
static int forbids(void)
{
	int status;
	if (!fork()) {
		signal(SIGSEGV, faulted);
		prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
		__builtin_ia32_rdtsc();
		_exit(0);
	}
	wait(&status);
	return WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "fs0";
	int is(const char *s) { return !strcmp(mode, s); }
	char out[200];
	char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *none = mmap(0, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *junk = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < 8192; i += 8)
		*(long *)(junk + i) = 0x1234500000 + i;
	*(void **)junk = junk + 64;
	if (is("forbids")) {
		puts(forbids() ? "yes" : "no");
		return 0;
	}
	if (is("blocked")) {
		sigset_t set;
		struct sigaction sa = {.sa_sigaction = odd, .sa_flags = SA_SIGINFO};
		sigaction(SIGSEGV, &sa, 0);
		sigemptyset(&set);
		sigaddset(&set, SIGSEGV);
		sigaddset(&set, SIGBUS);
		sigprocmask(SIG_BLOCK, &set, 0);
	}
	bare = is("bare");
	if (is("guard") || is("guards") || bare)
		handle();
	if (is("ignored"))
		signal(SIGSEGV, SIG_IGN);
	say("ready\n");
	if (is("guards") || is("odds") || bare) {
		say(is("odds") ? work_odds() : work_guards());
		wait_line();
		wait_line();
		_exit(7);
	}
	wait_line();
	if (is("tsc") || is("blocked") || is("ignored"))
		prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
	if (is("strict"))
		prctl(PR_SET_SECCOMP, 1);
	long sum = 0;
	if (is("guard"))
		sum = work_guard();
	else if (is("stray"))
		sum = work_stray();
	else if (is("align"))
		sum = aligned(N, "1a text" + 1);
	else if (is("protect") || is("unmap")) {
		take_away(is("unmap"));
		for (long i = 0; i < N; i++)
			sum += step(i, "a text");
	}
	else if (is("clone"))
		sum = work_clone();
	else if (is("fs0") || is("blocked") || is("ignored"))
		sum = inside(0, N, "a text");
	else if (is("fsnone"))
		sum = inside((long)none, N, "a text");
	else if (is("fszero"))
		sum = inside((long)page, N, "a text");
	else if (is("fsjunk"))
		sum = inside((long)junk, N, "a text");
	else
		for (long i = 0; i < N; i++)
			sum += step(i, "a text");
	if (is("strict")) {
		char *p = out + sizeof out;
		*--p = 0;
		*--p = '\n';
		for (long v = sum; v; v /= 10)
			*--p = '0' + v % 10;
		say("done ");
		say(p);
		wait_line();
		sys(SYS_exit, 7, 0, 0);
	}
	if (is("blocked") || is("ignored"))
		prctl(PR_SET_TSC, PR_TSC_ENABLE);
	snprintf(out, sizeof out, "done %ld %ld %llx %s\n", sum, faults, (unsigned long long)hash, is("blocked") || is("ignored") ? state() : "");
	say(out);
	wait_line();
	_exit(7);
}
