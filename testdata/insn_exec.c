// Runs pieces of machine code with given registers and prints what became of
// registers, flags and memory.
//
// Memory map, the same for every run: data at DATA (read and write), a stack at
// STACK, the original code at CODE, a copy near it at NEAR, one out of reach at
// FAR. What holds no code is int3.
//
// Input, on standard input, binary, repeated: u64 address, u64 rip, u64 length,
// code placed at the address, 16 u64 general registers by number, u64 flags,
// u64 seed of the data. Output: 16 u64 registers, u64 flags, u64 rip at the end,
// u64 signal, u64 hash of the data, 64 u64 of the stack from 256 below rsp at the
// start on, 16 u64 of xmm0 to xmm7.
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define DATA 0x10000000UL
#define STACK 0x20000000UL
#define CODE 0x30000000UL
#define NEAR 0x38000000UL
#define FAR 0x130000000UL
#define SIZE 0x10000UL

static const int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
	REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
static ucontext_t home, last;
static struct _libc_fpstate fp, home_fp;
static volatile int state;
static uint64_t in_regs[18], signal_number;
static uint64_t run_at;

static void *map(uint64_t at, int prot)
{
	void *p = mmap((void *)at, SIZE, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (p != (void *)at) {
		perror("mmap");
		exit(3);
	}
	return p;
}

// The first SIGUSR1 saves this program's context and goes to the code; whatever
// signal comes next ends the code and goes back.
static void handler(int sig, siginfo_t *si, void *arg)
{
	ucontext_t *uc = arg;
	(void)si;
	if (state == 0) {
		state = 1;
		memcpy(home.uc_mcontext.gregs, uc->uc_mcontext.gregs, sizeof(gregset_t));
		memcpy(&home_fp, uc->uc_mcontext.fpregs, offsetof(struct _libc_fpstate, __glibc_reserved1));
		for (int i = 0; i < 16; i++)
			uc->uc_mcontext.gregs[order[i]] = in_regs[i];
		uc->uc_mcontext.gregs[REG_EFL] = (uc->uc_mcontext.gregs[REG_EFL] & ~0xcd5UL) | (in_regs[16] & 0xcd5);
		uc->uc_mcontext.gregs[REG_RIP] = run_at;
		for (int i = 0; i < 16; i++)
			for (int k = 0; k < 4; k++)
				uc->uc_mcontext.fpregs->_xmm[i].element[k] = 0x01010101u * (i + 1) + k;
		return;
	}
	state = 2;
	signal_number = sig;
	memcpy(last.uc_mcontext.gregs, uc->uc_mcontext.gregs, sizeof(gregset_t));
	memcpy(&fp, uc->uc_mcontext.fpregs, sizeof fp);
	memcpy(uc->uc_mcontext.fpregs, &home_fp, offsetof(struct _libc_fpstate, __glibc_reserved1));
	memcpy(uc->uc_mcontext.gregs, home.uc_mcontext.gregs, sizeof(gregset_t));
}

static int get(void *p, size_t n) { return fread(p, 1, n, stdin) == n; }

static void fill(uint64_t seed)
{
	uint64_t *d = (uint64_t *)DATA;
	for (size_t i = 0; i < SIZE / 8; i++) {
		seed = seed * 6364136223846793005UL + 1442695040888963407UL;
		d[i] = seed >> 7;
	}
	// Pointers for indirect jumps and calls, and a stack of known contents.
	d[0] = CODE + 0x800;
	d[1] = CODE + 0x900;
	uint64_t *s = (uint64_t *)STACK;
	for (size_t i = 0; i < SIZE / 8; i++)
		s[i] = 0x50000000UL + i;
}

static uint64_t hash(void)
{
	uint64_t h = 0, *d = (uint64_t *)DATA;
	for (size_t i = 0; i < SIZE / 8; i++)
		h = (h ^ d[i]) * 0x9e3779b97f4a7c15UL + (h >> 29);
	return h;
}

int main(void)
{
	map(DATA, PROT_READ | PROT_WRITE);
	map(STACK, PROT_READ | PROT_WRITE);
	uint64_t places[] = {CODE, NEAR, FAR};
	for (int i = 0; i < 3; i++)
		map(places[i], PROT_READ | PROT_WRITE | PROT_EXEC);
	stack_t ss = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
	sigaltstack(&ss, 0);
	struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
	int sigs[] = {SIGUSR1, SIGTRAP, SIGSEGV, SIGILL, SIGFPE, SIGBUS};
	for (int i = 0; i < 6; i++)
		sigaction(sigs[i], &sa, 0);
	uint64_t at, n;
	while (get(&at, 8)) {
		static unsigned char code[4096];
		for (int i = 0; i < 3; i++)
			memset((void *)places[i], 0xcc, SIZE);
		if (!get(&run_at, 8) || !get(&n, 8) || n > sizeof code || !get(code, n))
			return 4;
		memcpy((void *)at, code, n);
		if (!get(in_regs, 8 * 18))
			return 4;
		fill(in_regs[17]);
		state = 0;
		signal_number = 0;
		// raise is declared to call nothing of this file, but the handler is.
		__asm__ volatile("" ::: "memory");
		raise(SIGUSR1);
		__asm__ volatile("" ::: "memory");
		uint64_t out[20 + 64 + 16];
		for (int i = 0; i < 16; i++)
			out[i] = last.uc_mcontext.gregs[order[i]];
		out[16] = last.uc_mcontext.gregs[REG_EFL] & 0xcd5;
		out[17] = last.uc_mcontext.gregs[REG_RIP];
		out[18] = signal_number;
		out[19] = hash();
		memcpy(out + 20, (void *)(in_regs[4] - 256), 64 * 8);
		memcpy(out + 84, fp._xmm, 16 * 8);
		if (fwrite(out, sizeof out, 1, stdout) != 1)
			return 5;
	}
	fflush(stdout);
	return 0;
}
