// A program with a text that runs into memory that isn't there, and a timer that is so fast that
// it often meets whoever copies the text. It prints "ready", calls hit until a line comes, prints
// "done" and how many faults it saw, and ends with status 7 after another line.
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

static volatile sig_atomic_t faults, ticks;

__attribute__((noinline, noclone)) void hit(const char *s) { __asm__ volatile("" : : "r"(s) : "memory"); }

static void on_tick(int sig) { (void)sig; ticks++; }
static void on_fault(int sig) { (void)sig; faults++; }

static int asked(void) {
    struct pollfd p = {.fd = 0, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

int main(void) {
    char line[64];
    setvbuf(stdout, NULL, _IONBF, 0);
    char *text = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (text == MAP_FAILED || munmap(text + 4096, 4096)) return 1;
    memset(text, 'a', 4096);
    struct sigaction tick = {.sa_handler = on_tick, .sa_flags = SA_RESTART}, fault = {.sa_handler = on_fault};
    sigaction(SIGALRM, &tick, NULL);
    sigaction(SIGSEGV, &fault, NULL);
    struct itimerval every = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &every, NULL);
    puts("ready");
    while (!asked())
        for (int i = 0; i < 100; i++) hit(text + 4096 - 3500);
    setitimer(ITIMER_REAL, &never, NULL);
    if (!fgets(line, sizeof line, stdin)) return 1;
    printf("done %d\n", (int)faults);
    if (!fgets(line, sizeof line, stdin)) return 1;
    return 7;
}
