// Some 150 functions of the C library at work, and code of its own in which
// compilers use what they have: jump tables, vectors, bit fields, variable
// arrays, long double. Usage: storm_every THREADS [ROUNDS]. It works once to
// learn what is right, prints "ready", starts at a line, stops after ROUNDS or
// at the next line, and prints "done BAD", how many rounds had another result.
// With a further line it ends with status 7.
#define _GNU_SOURCE
#include <argz.h>
#include <arpa/inet.h>
#include <byteswap.h>
#include <complex.h>
#include <ctype.h>
#include <endian.h>
#include <envz.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <libgen.h>
#include <locale.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <regex.h>
#include <sched.h>
#include <search.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>
#include <wctype.h>

#define NOINLINE __attribute__((noinline))
typedef uint64_t u64;
static NOINLINE u64 mix(u64 h, u64 v) { h ^= v; h *= 0x100000001b3ull; return h ^ h >> 29; }
static NOINLINE u64 text(u64 h, const char *s) { while (*s) h = mix(h, (unsigned char)*s++); return h; }

static NOINLINE u64 strings(u64 h) {
    char a[200], b[200], c[64], *save = 0;
    memset(a, 'x', 150); a[150] = 0;
    strcpy(b, "The quick brown fox"); strcat(b, " jumps"); strncat(b, " over the lazy dog", 9);
    h = mix(h, strlen(a) + strnlen(b, 7)); h = text(h, b);
    h = mix(h, strcmp(a, b) > 0); h = mix(h, strncmp(b, "The quiet", 5)); h = mix(h, strcasecmp("ABC", "abC")); h = mix(h, strncasecmp("ABx", "abY", 2));
    h = mix(h, strchr(b, 'q') - b); h = mix(h, strrchr(b, 'o') - b); h = mix(h, strchrnul(b, 'Z') - b); h = mix(h, strstr(b, "fox") - b); h = mix(h, strcasestr(b, "FOX") - b);
    h = mix(h, strspn(b, "The ")); h = mix(h, strcspn(b, "qz")); h = mix(h, strpbrk(b, "kw") - b);
    memcpy(c, b, 30); memmove(c + 3, c, 20); memset(c + 40, 7, 10); h = mix(h, memcmp(c, b, 30) > 0); h = mix(h, (char *)memchr(c, 'u', 30) - c); h = mix(h, (char *)memrchr(c, 'u', 30) - c);
    h = mix(h, (char *)memmem(b, strlen(b), "brown", 5) - b); h = mix(h, (char *)rawmemchr(b, 'f') - b); h = mix(h, (char *)mempcpy(c, b, 9) - c); h = mix(h, (char *)memccpy(c, b, 'q', 30) - c);
    for (char *t = strtok_r(b, " ", &save); t; t = strtok_r(0, " ", &save)) h = text(h, t);
    char *p = a, *q; strcpy(a, "one,two,,three"); while ((q = strsep(&p, ","))) h = text(h, q);
    h = mix(h, stpcpy(a, "stpcpy") - a); h = mix(h, stpncpy(a, "abcdef", 3) - a); h = mix(h, strverscmp("a9", "a10") < 0);
    q = strdup("duplicate"); h = text(h, q); free(q); q = strndup("duplicate", 3); h = text(h, q); free(q);
    strcpy(a, "/usr/lib/file.c"); h = text(h, basename(a)); h = text(h, dirname(a)); h = mix(h, ffs(0x80) + ffsll(1ll << 40)); swab("abcdef", c, 6); h = mix(h, c[0]);
    h = mix(h, strcoll("abc", "abd") < 0); h = mix(h, strxfrm(c, "sort", sizeof c)); memfrob(c, 4); h = mix(h, c[1]); h = text(h, strerror_r(ENOENT, a, sizeof a));
    char *z = 0; size_t zl = 0; argz_create_sep("a:bb:ccc", ':', &z, &zl); h = mix(h, argz_count(z, zl)); argz_add(&z, &zl, "dd"); h = mix(h, zl); free(z);
    return h;
}
static NOINLINE u64 numbers(u64 h) {
    char b[300], *end;
    h = mix(h, strtol("-12345xyz", &end, 10)); h = mix(h, *end); h = mix(h, strtoul("0xdeadbeef", 0, 16)); h = mix(h, strtoull("777", 0, 8)); h = mix(h, strtoimax("99", 0, 10));
    h = mix(h, atoi("42") + atol("43") + atoll("44")); h = mix(h, (u64)(strtod("3.25e3", 0) * 8)); h = mix(h, (u64)strtof("1.5", 0)); h = mix(h, (u64)strtold("1e10", 0)); h = mix(h, (u64)atof("2.5"));
    snprintf(b, sizeof b, "%d|%-8u|%08x|%+lld|%o|%c|%.3s|%10s|%p|%%|%zu|%hhd", -5, 17u, 0xbeefu, 1ll << 40, 8, 'c', "string", "right", (void *)0x1234, (size_t)9, 300); h = text(h, b);
    snprintf(b, sizeof b, "%f|%.2e|%g|%a|%Lf|%*d", 3.14159, 12345.678, 0.0001, 1.0, 2.5L, 6, 42); h = text(h, b);
    int i1, i2; char w[20]; double d; h = mix(h, sscanf("12 0x1f word 2.5", "%d %i %19s %lf", &i1, &i2, w, &d)); h = mix(h, i1 + i2 + (int)(d * 2)); h = text(h, w);
    div_t dv = div(17, 5); ldiv_t lv = ldiv(1000003, 97); h = mix(h, dv.quot + dv.rem + lv.rem); h = mix(h, labs(-5) + llabs(-6) + abs(-7));
    unsigned short x[3] = {1, 2, 3}; h = mix(h, nrand48(x)); h = mix(h, (u64)(erand48(x) * 1000)); unsigned s = 5; h = mix(h, rand_r(&s));
    char state[64]; struct random_data rd = {0}; int32_t r; initstate_r(3, state, sizeof state, &rd); random_r(&rd, &r); h = mix(h, r);
    h = text(h, inet_ntop(AF_INET, "\x7f\0\0\1", b, sizeof b)); unsigned char in6[16]; h = mix(h, inet_pton(AF_INET6, "fe80::1", in6)); h = mix(h, in6[15]); h = mix(h, htonl(1) + ntohs(2) + bswap_64(3));
    char *l64 = 0; if (asprintf(&l64, "%s-%d", "as", 3) > 0) h = text(h, l64); free(l64); h = text(h, ecvt_r(1.5, 4, &i1, &i2, b, sizeof b) ? "" : b); h = text(h, gcvt(2.75, 5, b));
    h = mix(h, (u64)(sin(0.5) * 1e6)); h = mix(h, (u64)(pow(1.5, 3.5) * 1e6)); h = mix(h, (u64)(exp(1.25) * 1e6)); h = mix(h, (u64)(log(9.5) * 1e6)); h = mix(h, (u64)(cbrt(5) * 1e6)); h = mix(h, (u64)(atan2(1, 3) * 1e6));
    h = mix(h, (u64)(fmod(10.5, 3) * 4)); h = mix(h, (u64)(hypotl(3, 4))); h = mix(h, lround(2.5)); h = mix(h, (u64)(cabs(3 + 4 * I))); h = mix(h, (u64)(tgamma(4.5) * 1e3)); int e; h = mix(h, (u64)(frexp(48, &e) * 16) + e); h = mix(h, (u64)ldexp(1, 9)); h = mix(h, (u64)(sinf(1) * 1e4)); h = mix(h, (u64)(floor(2.7) + ceil(2.2) + trunc(-2.5) + rint(3.5) + 10)); h = mix(h, (u64)(fma(2, 3, 4)));
    return h;
}
static int order(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static int order_r(const void *a, const void *b, void *k) { return (*(const int *)a ^ *(int *)k) - (*(const int *)b ^ *(int *)k); }
static NOINLINE u64 tables(u64 h) {
    int v[60], key = 5;
    for (int i = 0; i < 60; i++) v[i] = i * 37 % 61;
    qsort(v, 60, sizeof *v, order); int *f = bsearch(&key, v, 60, sizeof *v, order); h = mix(h, f ? f - v : 99); qsort_r(v, 60, sizeof *v, order_r, &key); for (int i = 0; i < 60; i++) h = mix(h, v[i]);
    size_t n = 60; h = mix(h, (int *)lfind(&key, v, &n, sizeof *v, order) - v);
    void *root = 0; for (int i = 0; i < 20; i++) tsearch(&v[i], &root, order); h = mix(h, **(int **)tfind(&v[7], &root, order)); for (int i = 0; i < 20; i++) tdelete(&v[i], &root, order); h = mix(h, root == 0);
    struct hsearch_data hd = {0}; ENTRY e = {"key", "value"}, *found = 0; hcreate_r(20, &hd); hsearch_r(e, ENTER, &found, &hd); e.data = 0; hsearch_r(e, FIND, &found, &hd); h = text(h, found->data); hdestroy_r(&hd);
    regex_t re; regmatch_t m[3]; regcomp(&re, "([a-z]+)([0-9]*)x", REG_EXTENDED); h = mix(h, regexec(&re, "--abc123x--", 3, m, 0)); h = mix(h, m[1].rm_so + m[2].rm_eo); regfree(&re);
    h = mix(h, fnmatch("*.c", "file.c", 0)); h = mix(h, fnmatch("[a-f]?", "g1", 0));
    void *p = malloc(100), *q = calloc(10, 30), *r = realloc(malloc(50), 5000); h = mix(h, ((char *)q)[299]); memset(r, 1, 5000); free(p); free(q); free(r); void *al = aligned_alloc(64, 256); h = mix(h, (uintptr_t)al & 63); free(al); if (!posix_memalign(&al, 128, 256)) free(al);
    return h;
}
static NOINLINE u64 streams(u64 h) {
    char *buf = 0, line[64]; size_t n = 0;
    FILE *f = open_memstream(&buf, &n); fprintf(f, "%d %s\n", 42, "line"); fputs("second\n", f); fputc('!', f); putc('?', f); fwrite("abc", 1, 3, f); fseek(f, 2, SEEK_SET); fflush(f); h = mix(h, ftell(f)); fclose(f); h = text(h, buf);
    f = fmemopen(buf, strlen(buf), "r"); if (fgets(line, sizeof line, f)) h = text(h, line); h = mix(h, fgetc(f)); ungetc('Z', f); h = mix(h, getc(f)); h = mix(h, fread(line, 1, 3, f)); rewind(f); int a; h = mix(h, fscanf(f, "%d", &a)); h = mix(h, feof(f) + ferror(f));
    char *l = 0; size_t ln = 0; h = mix(h, getline(&l, &ln, f)); h = mix(h, getdelim(&l, &ln, 'c', f)); free(l); fclose(f); free(buf);
    time_t t = 1234567890; struct tm tm; gmtime_r(&t, &tm); strftime(line, sizeof line, "%Y-%m-%d %H:%M:%S %j %a", &tm); h = text(h, line); h = mix(h, timegm(&tm)); h = text(h, asctime_r(&tm, line)); strptime("2020-02-03", "%Y-%m-%d", &tm); h = mix(h, tm.tm_mday); h = mix(h, (u64)difftime(9, 5));
    wchar_t w[64]; mbstate_t ms = {0}; const char *src = "wide text"; h = mix(h, mbsrtowcs(w, &src, 60, &ms)); h = mix(h, wcslen(w) + wcscmp(w, L"wide") + (wcschr(w, L't') - w)); wcscpy(w + 20, w); wmemset(w, L'q', 3); h = mix(h, wcstol(L"77", 0, 10)); h = mix(h, swprintf(w, 60, L"%d-%ls", 5, L"x")); h = mix(h, wcscoll(L"a", L"b") < 0); h = mix(h, towupper(L'a') + iswalpha(L'7') + wctob(L'c') + btowc('d'));
    for (int c = 30; c < 130; c += 7) h = mix(h, isalpha(c) + 2 * isdigit(c) + 4 * isspace(c) + tolower(c) + toupper(c) + !!ispunct(c)); h = text(h, setlocale(LC_ALL, 0)); h = mix(h, getenv("HOME_THAT_IS_NOT") == 0); h = mix(h, isatty(0)); h = mix(h, access("/", F_OK)); struct stat st; h = mix(h, stat("/dev/null", &st) + S_ISCHR(st.st_mode)); h = mix(h, getppid() > 0); h = mix(h, poll(0, 0, 0)); struct timespec ts; h = mix(h, clock_gettime(CLOCK_MONOTONIC, &ts)); struct timeval tv; h = mix(h, gettimeofday(&tv, 0)); h = mix(h, sysconf(_SC_PAGESIZE)); h = mix(h, sched_yield());
    return h;
}
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER; static pthread_once_t once = PTHREAD_ONCE_INIT; static pthread_key_t key; static __thread int tls;
static void init(void) { pthread_key_create(&key, 0); }
static NOINLINE u64 locks(u64 h) {
    sem_t s; sigset_t set; pthread_once(&once, init); pthread_setspecific(key, &tls); h = mix(h, pthread_getspecific(key) == &tls); pthread_mutex_lock(&mu); pthread_mutex_unlock(&mu); pthread_rwlock_rdlock(&rw); pthread_rwlock_unlock(&rw); sem_init(&s, 0, 1); sem_wait(&s); sem_post(&s); sem_trywait(&s); sem_destroy(&s);
    sigemptyset(&set); sigaddset(&set, SIGUSR1); h = mix(h, sigismember(&set, SIGUSR1)); pthread_sigmask(SIG_BLOCK, 0, &set); pthread_cond_t c; pthread_cond_init(&c, 0); pthread_cond_signal(&c); pthread_cond_destroy(&c); pthread_attr_t at; size_t sz; pthread_attr_init(&at); pthread_attr_getstacksize(&at, &sz); pthread_attr_destroy(&at); h = mix(h, pthread_equal(pthread_self(), pthread_self())); return mix(h, sz > 0);
}
struct bits { unsigned a : 3, b : 13; int c : 7; u64 d : 41; };
static NOINLINE long choose(long n) {
    switch (n) { case 0: return 11; case 1: return n * 2; case 2: return 13 + n; case 3: return n ^ 5; case 4: return 99; case 5: return n - 4; case 6: return n / 3; case 7: return 1 - n; case 8: return n << 3; case 9: return -n; default: return n * n; }
}
static NOINLINE u64 variadic(int n, ...) { va_list ap; u64 h = 0; va_start(ap, n); while (n--) h = mix(h, va_arg(ap, int)) + (u64)va_arg(ap, double); va_end(ap); return h; }
static NOINLINE u64 array(u64 h, int n) { int v[n]; for (int i = 0; i < n; i++) v[i] = i * i; for (int i = 0; i < n; i++) h = mix(h, v[n - 1 - i]); return h; }
static NOINLINE void vectors(float *o, const float *a, const float *b, int n) { for (int i = 0; i < n; i++) o[i] = a[i] * b[i] + o[n - 1 - i]; }
static NOINLINE long double longer(long double x) { return x * x / 3 + sqrtl(x); }
static NOINLINE u64 goes(u64 h) { static const void *const to[] = {&&a, &&b, &&c, &&d}; for (int i = 0; i < 12; i++) { goto *to[(h >> i) & 3]; a: h += 3; continue; b: h ^= 77; continue; c: h = h << 1 | h >> 63; continue; d: h *= 5; } return h; }
static NOINLINE void leaves(jmp_buf j, int n) { if (!n) longjmp(j, 3); leaves(j, n - 1); __asm__ volatile(""); }
static NOINLINE u64 jumps(u64 h) { jmp_buf j; volatile u64 v = h; int r = setjmp(j); if (!r) leaves(j, 5); return mix(v, r); }
static NOINLINE u64 atomics(u64 h) { static u64 n; u64 was = __atomic_fetch_add(&n, 0, __ATOMIC_SEQ_CST); __atomic_compare_exchange_n(&n, &was, was, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); unsigned __int128 p = (unsigned __int128)h * (h | 1); return mix(h, (u64)(p >> 64) + __builtin_popcountll(h) + __builtin_clzll(h | 1) + (u64)(p % 1000003)); }
static NOINLINE u64 own(u64 h) {
    struct bits b = {5, 4000, -30, 1ull << 40}; for (int i = 0; i < 12; i++) { h = mix(h, choose((h + i) % 12)); b.b += i; b.c ^= i; b.d -= h & 255; } h = mix(h, b.a + b.b + b.c + b.d);
    float x[37], y[37], z[37]; for (int i = 0; i < 37; i++) { x[i] = i; y[i] = i * 0.5f; z[i] = 1; } vectors(z, x, y, 37); for (int i = 0; i < 37; i++) h = mix(h, (u64)z[i]);
    h = mix(h, variadic(3, 1, 1.5, 2, 2.5, 3, 3.5)); h = array(h, 5 + h % 20); h = mix(h, (u64)longer(2.25L)); h = goes(h); h = jumps(h); return atomics(h);
}
static NOINLINE u64 everything(void) { u64 h = 14695981039346656037ull; h = own(h); h = strings(h); h = numbers(h); h = tables(h); h = streams(h); return locks(h); }

static volatile int stop; static u64 right; static unsigned long bad, rounds; static long count = -1;
static void *run(void *arg) { unsigned long n = 0; (void)arg; while (!stop && (count < 0 || (long)n < count)) { n++; if (everything() != right) __atomic_add_fetch(&bad, 1, __ATOMIC_RELAXED); } __atomic_add_fetch(&rounds, n, __ATOMIC_RELAXED); return 0; }
int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1; pthread_t t[64]; char line[64];
    if (argc > 2) count = atol(argv[2]);
    right = everything();
    puts("ready"); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 3;
    if (count >= 0) run(0);
    else { for (int i = 0; i < n; i++) pthread_create(&t[i], 0, run, 0); if (!fgets(line, sizeof line, stdin)) return 3; stop = 1; for (int i = 0; i < n; i++) pthread_join(t[i], 0); }
    printf("done %lu\n", bad); fflush(stdout);
    fprintf(stderr, "%s", rounds ? "" : "no round\n");
    if (!fgets(line, sizeof line, stdin)) return 4;
    return 7;
}
