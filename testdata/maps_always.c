// maps_always.c: a program that maps memory all the time, as a runtime with a garbage
// collector does. It has 64 functions. For each line that it reads it calls each of them once, and
// says the sum of their results.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define F(n)                                                                   \
  __attribute__((noinline)) int mapper_##n(int x) {                            \
    __asm__ volatile("" : "+r"(x));                                            \
    return x * 3 + 0x##n;                                                      \
  }
#define R(n)                                                                   \
  F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7)              \
  F(n##8) F(n##9) F(n##a) F(n##b) F(n##c) F(n##d) F(n##e) F(n##f)
R(0) R(1) R(2) R(3)
#define C(n) sum += mapper_##n(i);
#define S(n)                                                                   \
  C(n##0) C(n##1) C(n##2) C(n##3) C(n##4) C(n##5) C(n##6) C(n##7)              \
  C(n##8) C(n##9) C(n##a) C(n##b) C(n##c) C(n##d) C(n##e) C(n##f)

// map takes 16 KiB more every now and then, each below the last.
static void *map(void *unused) {
  (void)unused;
  for (;; usleep(200))
    if (mmap(0, 16 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
      abort();
  return 0;
}

int main(void) {
  pthread_t t;
  if (pthread_create(&t, 0, map, 0))
    return 1;
  puts("ready");
  fflush(stdout);
  for (int c, i = 0; (c = getchar()) != EOF;) {
    if (c == 'q')
      return 7;
    if (c != '\n')
      continue;
    int sum = 0;
    S(0) S(1) S(2) S(3)
    i++;
    printf("done %d\n", sum);
    fflush(stdout);
  }
  return 0;
}
