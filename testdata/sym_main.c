// A program whose symbols tests look for. It prints "NAME 0xADDR" for what it
// knows about itself, then "ready", and ends when standard input does.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef DYNAMIC
#include <dlfcn.h>
#include <link.h>
#endif

int sym_counter = 7;
static int sym_hidden = 9;
__thread int sym_thread;
char sym_zeroed[4096];
extern int sym_other(int);

static int twin(int x) { return x + 1; }
int sym_work(int x) { return x * 3; }
int sym_alias(int x) __attribute__((alias("sym_work")));
int __sym_alias(int x) __attribute__((alias("sym_work")));
static int only_here(int x) { return x - 5; }

#ifdef IFUNC
static int chosen_impl(int x) { return x + 40; }
static int (*resolve_chosen(void))(int) { return chosen_impl; }
int sym_chosen(int x) __attribute__((ifunc("resolve_chosen")));
static int idle_impl(int x) { return x + 50; }
static int (*resolve_idle(void))(int) { return idle_impl; }
int sym_idle(int x) __attribute__((ifunc("resolve_idle")));
#endif

static void tell(const char *name, void *at) { printf("%s %p\n", name, at); }

#ifdef DYNAMIC
static int each(struct dl_phdr_info *i, size_t n, void *x) {
  (void)n;
  (void)x;
  const char *base = strrchr(i->dlpi_name, '/');
  printf("module:%s %p\n", base ? base + 1 : i->dlpi_name, (void *)i->dlpi_addr);
  return 0;
}
#endif

int main(int argc, char **argv) {
  volatile int sum = 0;
  sum += twin(argc) + sym_work(argc) + only_here(argc) + sym_other(argc) + sym_hidden + sym_thread;
  sum += (int)strlen(argv[0]);
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  sum += time(NULL) == 1;
  tell("main", main);
  tell("sym_work", sym_work);
  tell("only_here", only_here);
  tell("twin@sym_main.c", twin);
  tell("data:sym_counter", &sym_counter);
  tell("data:sym_hidden", &sym_hidden);
  tell("data:sym_zeroed", sym_zeroed);
#ifdef IFUNC
  sum += sym_chosen(argc);
  tell("sym_chosen", chosen_impl);
#endif
#ifdef DYNAMIC
  const char *names[] = {"strlen", "memcpy", "malloc", "open", "strchr", "time", "gettimeofday", "pthread_create"};
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) tell(names[i], dlsym(RTLD_DEFAULT, names[i]));
  tell("data:environ", dlsym(RTLD_DEFAULT, "environ"));
  tell("data:stdout", dlsym(RTLD_DEFAULT, "stdout"));
  tell("extra", stdout);
  dl_iterate_phdr(each, 0);
#endif
  puts("ready");
  fflush(stdout);
  char c;
  while (read(0, &c, 1) > 0) {
#ifdef DYNAMIC
    if (c == 'l') {
      void *h = dlopen("libm.so.6", RTLD_NOW | RTLD_GLOBAL);
      tell("cos", h ? dlsym(h, "cbrt") : 0);
      puts("ready");
      fflush(stdout);
    }
#endif
  }
  return sum == -1;
}
