// Calls for testdata/beside_uftrace.sh: 8 of each request, of three functions. Usage:
// beside_uftrace REQUESTS. It prints how much processor time they took, in seconds.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#define NI __attribute__((noinline,noclone))
NI long leaf(long n) { long s = n; for (int i = 0; i < 60; i++) s = s * 31 + i; return s; }
NI long branch(long n) { return leaf(n) + leaf(n + 1); }
NI long request(long n) { return branch(n) + branch(n + 2) + leaf(n); }
int main(int c, char **v) { long n = atol(v[1]), s = 0; struct timespec a, b; clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a); for (long i = 0; i < n; i++) s += request(i); clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b); fprintf(stderr, "%.3f %ld\n", (b.tv_sec-a.tv_sec)+(b.tv_nsec-a.tv_nsec)/1e9, s & 1); }
