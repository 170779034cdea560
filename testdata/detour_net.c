// Runs code that a test made: maps the segments of an image file at their
// addresses, installs the net in it, and does what a case says.
//   detour_net IMAGE HANDLER RESTORER DATA loop THREADS N SITE...   each thread calls all sites N times
//   detour_net IMAGE HANDLER RESTORER DATA CASE ACTION              one case; HANDLER 0: without the net
// Image: {u64 address, bytes in the file, bytes mapped, protection}, the bytes, and so on.
#define _GNU_SOURCE
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

struct kaction { uint64_t handler, flags, restorer, mask; };

static void load(const char *path) {
    FILE *f = fopen(path, "rb");
    uint64_t h[4];
    if (!f) exit(97);
    while (fread(h, sizeof h, 1, f) == 1) {
        char *p = mmap((void *)h[0], h[2], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (p != (char *)h[0] || (h[1] && fread(p, h[1], 1, f) != 1) || mprotect(p, h[2], h[3])) exit(96);
    }
    fclose(f);
}

static void install(uint64_t handler, uint64_t restorer, char *data) {
    static const int sigs[] = {SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV};
    for (int i = 0; i < 5; i++) {
        struct kaction old, new = {handler, SA_SIGINFO | SA_ONSTACK | 0x04000000 | SA_NODEFER | SA_RESTART, restorer, 0};
        if (syscall(SYS_rt_sigaction, sigs[i], 0, &old, 8)) exit(95);
        memcpy(data + 128 + 32 * sigs[i], &old, 32);
        if (syscall(SYS_rt_sigaction, sigs[i], &new, 0, 8)) exit(95);
    }
}

static long loops;
static char **sites;
static void *spin(void *arg) {
    unsigned long sum = 0;
    for (long i = 0; i < loops; i++)
        for (char **s = sites; *s; s++) sum += ((unsigned long (*)(unsigned long))strtoul(*s, 0, 16))(i);
    *(unsigned long *)arg = sum;
    return 0;
}

static void loop(int n) {
    pthread_t t[64];
    unsigned long sum[64];
    for (int i = 0; i < n; i++) pthread_create(&t[i], 0, spin, &sum[i]);
    for (int i = 0; i < n; i++) pthread_join(t[i], 0);
    for (int i = 0; i < n; i++) printf("%lu\n", sum[i]);
}

extern char trap_here[], load_here[], after_load[], ill_here[], after_ill[], promised[], copy_load[], copy_div[], after_copy[];
static int copying, ignoring;
static char stack[1 << 16];
static volatile int entered;
static void handler(int sig, siginfo_t *si, void *arg) {
    ucontext_t *u = arg;
    sigset_t m;
    char here;
    void *frames[8];
    sigprocmask(SIG_BLOCK, 0, &m);
    const char *at = (const char *)u->uc_mcontext.gregs[REG_RIP];
    const char *name = at == trap_here + 1 ? "trap" : at == load_here ? "load" : at == ill_here ? "ill" : "else";
    printf("handler %d code %d at %s blocked", sig, si->si_code, name);
    for (int i = 1; i < 32; i++) if (sigismember(&m, i) == 1) printf(" %d", i);
    unsigned mxcsr;
    unsigned short cw;
    asm volatile("stmxcsr %0; fnstcw %1" : "=m"(mxcsr), "=m"(cw));
    printf(" mxcsr %x cw %x", mxcsr, cw);
    printf(" alt %d frames %d addr %d value %d\n", &here >= stack && &here < stack + sizeof stack,
           copying || backtrace(frames, 8) >= 3, // a case may ask for a stack pointer that no call frame information is true of
           si->si_code > 0 ? (int)((uintptr_t)si->si_addr & 0xfff) : si->si_pid == getpid(), si->si_code == SI_QUEUE ? si->si_value.sival_int : 0);
    fflush(stdout);
    if (copying && at == load_here) {
        greg_t *r = u->uc_mcontext.gregs;
        printf("rsp %lld rsi %lld rdi %lld rbx %lld here %d\n", r[REG_R12] - r[REG_RSP], r[REG_RSI], r[REG_RDI], r[REG_RBX], si->si_addr == load_here);
        r[REG_RIP] = (greg_t)after_copy;
    } else if (at == load_here) u->uc_mcontext.gregs[REG_RIP] = (greg_t)after_load;
    if (at == ill_here) u->uc_mcontext.gregs[REG_RIP] = (greg_t)after_ill;
    entered++;
}

static void event(const char *c, char *site) {
    unsigned mxcsr = 0xff80; // the thread's own state, not a handler's
    unsigned short cw = 0x027f;
    asm volatile("ldmxcsr %0; fldcw %1; fld1" : : "m"(mxcsr), "m"(cw));
    if (!strcmp(c, "int3")) asm volatile(".globl trap_here\ntrap_here: int3");
    if (!strcmp(c, "int3cd")) asm volatile(".byte 0xcd, 3");
    if (!strcmp(c, "load")) asm volatile(".globl load_here, after_load\nload_here: movl (%0), %%eax\nafter_load:" ::"r"(0x123L) : "rax");
    if (!strcmp(c, "ill")) asm volatile(".globl ill_here, after_ill\nill_here: ud2\nafter_ill:");
    if (!strcmp(c, "step")) asm volatile("pushfq; orl $0x100, (%%rsp); popfq; nop; pushfq; andl $~0x100, (%%rsp); popfq" ::: "cc", "memory");
    if (!strcmp(c, "raise")) raise(SIGTRAP);
    if (!strcmp(c, "kill")) kill(getpid(), SIGTRAP);
    if (!strcmp(c, "killsegv")) kill(getpid(), SIGSEGV);
    if (!strcmp(c, "queue")) sigqueue(getpid(), SIGTRAP, (union sigval){.sival_int = 77});
    if (!strcmp(c, "site")) printf("%lu\n", ((unsigned long (*)(unsigned long))site)(5));
    if (!strcmp(c, "promise")) { // to go on at promised, as a tracer says before it is killed
        siginfo_t si = {.si_signo = SIGTRAP, .si_code = (int)(uintptr_t)site};
        int kept;
        si.si_addr = promised;
        asm volatile("syscall; movl $0, %0; jmp 1f; .globl promised; promised: movl $1, %0; 1:"
                     : "=&r"(kept) : "a"(SYS_rt_sigqueueinfo), "D"(getpid()), "S"(SIGTRAP), "d"(&si) : "rcx", "r11", "memory");
        printf("kept %d\n", kept);
    }
    if (!strcmp(c, "copy")) { // what a copy does around an instruction: site words are pushed; without any it divides
        copying = 1;
        asm volatile("movq %%rsp, %%r12; movl $111, %%esi; movl $222, %%edi; movl $333, %%ebx; testl %%ecx, %%ecx; jnz 1f\n"
                     ".globl copy_div; copy_div: idivl %%ecx\n"
                     "1: decl %%ecx; jz 3f; leaq -128(%%rsp), %%rsp; 2: pushq $77; decl %%ecx; jnz 2b\n"
                     ".globl copy_load, after_copy; 3: copy_load: movl (%%rax), %%eax\n after_copy: movq %%r12, %%rsp"
                     :: "a"(0x123L), "d"(0), "c"(site) : "rsi", "rdi", "rbx", "r12", "memory", "cc");
    }
    if (!strcmp(c, "suspend") && !ignoring) { // the handler's mask is that of the call, not the frame's
        sigset_t s, none;
        sigemptyset(&none), sigemptyset(&s), sigaddset(&s, SIGTRAP), sigaddset(&s, SIGUSR2), sigprocmask(SIG_BLOCK, &s, 0);
        raise(SIGTRAP);
        sigsuspend(&none);
        sigprocmask(SIG_UNBLOCK, &s, 0);
    }
    if (!strcmp(c, "blocked")) {
        sigset_t s;
        sigemptyset(&s), sigaddset(&s, SIGTRAP), sigprocmask(SIG_BLOCK, &s, 0);
        raise(SIGTRAP);
        printf("blocked\n"), fflush(stdout);
        sigprocmask(SIG_UNBLOCK, &s, 0);
    }
}

int main(int argc, char **argv) {
    if (argc < 7) return 98;
    uint64_t net = strtoul(argv[2], 0, 16), restorer = strtoul(argv[3], 0, 16);
    char *data = (char *)strtoul(argv[4], 0, 16), *how = argv[6];
    load(argv[1]);
    if (!strcmp(argv[5], "loop")) {
        install(net, restorer, data);
        loops = atol(argv[7]), sites = argv + 8;
        loop(atoi(argv[6]));
        printf("%lu\n", *(unsigned long *)(data + 8));
        return 0;
    }
    void *warm[4];
    backtrace(warm, 4); // loads libgcc_s now
    stack_t alt = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    if (strstr(how, "ign")) sa.sa_handler = SIG_IGN, ignoring = 1;
    if (strstr(how, "dfl")) sa.sa_handler = SIG_DFL;
    if (strstr(how, "alt")) sigaltstack(&alt, 0), sa.sa_flags |= SA_ONSTACK;
    if (strstr(how, "nodefer")) sa.sa_flags |= SA_NODEFER;
    if (strstr(how, "reset")) sa.sa_flags |= SA_RESETHAND;
    if (strstr(how, "mask")) sigaddset(&sa.sa_mask, SIGUSR1), sigaddset(&sa.sa_mask, SIGINT);
    for (int i = 0; i < 5; i++) sigaction((int[]){SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV}[i], &sa, 0);
    if (net) install(net, restorer, data);
    event(argv[5], argc > 7 ? (char *)strtoul(argv[7], 0, 16) : 0);
    printf("entered %d\n", entered), fflush(stdout);
    if (strstr(how, "twice")) event(argv[5], 0);
    printf("end %d\n", entered), fflush(stdout);
}
