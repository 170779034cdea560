// Waits in one system call, named by the argument, and prints what it returned.
// Each is ended after about 300 ms by a timeout or by another process, those of a timeout after as many as a second argument says.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <errno.h>
#include <string.h>
#include <signal.h>
#include <poll.h>
#include <fcntl.h>
#include <time.h>
#include <mqueue.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/inotify.h>
#include <sys/timerfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/msg.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <linux/futex.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <stdint.h>

static void on(int s) {}
static void after(void (*fn)(int, int), int a, int b) {
	if (!fork()) {
		usleep(300000);
		fn(a, b);
		_exit(0);
	}
}
static void put(int fd, int n) { if (write(fd, "12345678", n) < 0) _exit(9); }
static void hit(int pid, int sig) { kill(pid, sig); }
static void nothing(int a, int b) {}

int main(int argc, char **argv) {
	const char *k = argv[1];
	int r = -9, sv[2], p[2];
	char b[64];
	long ms = argc > 2 ? atol(argv[2]) : 300;
	struct timespec ts = {ms / 1000, ms % 1000 * 1000000};
	struct timeval tv = {ms / 1000, ms % 1000 * 1000};
	socketpair(AF_UNIX, SOCK_STREAM, 0, sv);
	if (pipe(p)) return 9;
	signal(SIGCHLD, SIG_DFL);
	int ep = epoll_create1(0);
	struct epoll_event ev;
	struct pollfd pf = {sv[0], POLLIN, 0};
	printf("%d\n", getpid());
	fflush(stdout);
#define IS(name) else if (!strcmp(k, name))
	if (0) {}
	IS("epoll_wait") r = epoll_wait(ep, &ev, 1, ms);
	IS("epoll_pwait") { sigset_t s; sigemptyset(&s); r = epoll_pwait(ep, &ev, 1, ms, &s); }
	IS("epoll_pwait2") r = syscall(SYS_epoll_pwait2, ep, &ev, 1, &ts, 0, 8);
	IS("poll") r = poll(&pf, 1, ms);
	IS("ppoll") r = ppoll(&pf, 1, &ts, 0);
	IS("select") { fd_set f; FD_ZERO(&f); FD_SET(sv[0], &f); r = select(sv[0] + 1, &f, 0, 0, &tv); }
	IS("nanosleep") r = nanosleep(&ts, 0);
	IS("clock_nanosleep") { int e = clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, 0); errno = e; r = e ? -1 : 0; }
	IS("clock_nanosleep_abs") { struct timespec n; clock_gettime(CLOCK_MONOTONIC, &n); n.tv_nsec += 300000000; if (n.tv_nsec >= 1000000000) { n.tv_nsec -= 1000000000; n.tv_sec++; } int e = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &n, 0); errno = e; r = e ? -1 : 0; }
	IS("futex") { int w = 0; r = syscall(SYS_futex, &w, FUTEX_WAIT_PRIVATE, 0, &ts); }
	IS("recv_timeout") { setsockopt(sv[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv); r = recv(sv[0], b, 8, 0); }
	IS("recvmsg_timeout") { setsockopt(sv[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv); struct iovec v = {b, 8}; struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1}; r = recvmsg(sv[0], &m, 0); }
	IS("read_timeout") { setsockopt(sv[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv); r = read(sv[0], b, 8); }
	IS("recv") { after(put, sv[1], 4); r = recv(sv[0], b, 8, 0); }
	IS("send_timeout") { setsockopt(sv[0], SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv); static char big[1 << 16]; while ((r = send(sv[0], big, sizeof big, 0)) == sizeof big) {} if (r > 0) r = send(sv[0], big, sizeof big, 0); }
	IS("accept_timeout") { int l = socket(AF_UNIX, SOCK_STREAM, 0); struct sockaddr_un a = {AF_UNIX}; bind(l, (void *)&a, 2); listen(l, 1); setsockopt(l, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv); r = accept(l, 0, 0); }
	IS("connect_timeout") { int l = socket(AF_UNIX, SOCK_STREAM, 0); struct sockaddr_un a = {AF_UNIX}; bind(l, (void *)&a, 2); listen(l, 0); socklen_t n = sizeof a; getsockname(l, (void *)&a, &n); int c1 = socket(AF_UNIX, SOCK_STREAM, 0); connect(c1, (void *)&a, n); int c = socket(AF_UNIX, SOCK_STREAM, 0); setsockopt(c, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv); r = connect(c, (void *)&a, n); }
	IS("sigtimedwait") { sigset_t s; sigemptyset(&s); sigaddset(&s, SIGUSR1); sigprocmask(SIG_BLOCK, &s, 0); r = sigtimedwait(&s, 0, &ts); }
	IS("sigwaitinfo") { sigset_t s; sigemptyset(&s); sigaddset(&s, SIGUSR1); sigprocmask(SIG_BLOCK, &s, 0); after(hit, getpid(), SIGUSR1); r = sigwaitinfo(&s, 0); }
	IS("sigsuspend") { sigset_t s; sigemptyset(&s); signal(SIGUSR1, on); after(hit, getpid(), SIGUSR1); r = sigsuspend(&s); }
	IS("pause") { signal(SIGUSR1, on); after(hit, getpid(), SIGUSR1); r = pause(); }
	IS("semtimedop") { int id = semget(IPC_PRIVATE, 1, 0600 | IPC_CREAT); struct sembuf o = {0, -1, 0}; r = semtimedop(id, &o, 1, &ts); int e = errno; semctl(id, 0, IPC_RMID); errno = e; }
	IS("semop") { int id = semget(IPC_PRIVATE, 1, 0600 | IPC_CREAT); if (!fork()) { usleep(300000); semctl(id, 0, SETVAL, 1); _exit(0); } struct sembuf o = {0, -1, 0}; r = semop(id, &o, 1); int e = errno; semctl(id, 0, IPC_RMID); errno = e; }
	IS("msgrcv") { int id = msgget(IPC_PRIVATE, 0600 | IPC_CREAT); struct { long t; char c[8]; } m = {1, "x"}; if (!fork()) { usleep(300000); if (msgsnd(id, &m, 1, 0)) _exit(9); _exit(0); } r = msgrcv(id, &m, 8, 0, 0); int e = errno; msgctl(id, IPC_RMID, 0); errno = e; }
	IS("io_getevents") { aio_context_t c = 0; syscall(SYS_io_setup, 1, &c); struct io_event e; r = syscall(SYS_io_getevents, c, 1, 1, &e, &ts); }
	IS("io_uring_enter") { struct io_uring_params q = {0}; int fd = syscall(SYS_io_uring_setup, 4, &q); struct { uint64_t m; uint32_t n, pad; uint64_t ts; } arg = {0, 8, 0, (uint64_t)&ts}; r = fd < 0 ? -1 : syscall(SYS_io_uring_enter, fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &arg, sizeof arg); }
	IS("pipe_read") { after(put, p[1], 3); r = read(p[0], b, 8); }
	IS("eventfd_read") { int e = eventfd(0, 0); after(put, e, 8); r = read(e, b, 8); }
	IS("timerfd_read") { int t = timerfd_create(CLOCK_MONOTONIC, 0); struct itimerspec it = {.it_value = ts}; timerfd_settime(t, 0, &it, 0); r = read(t, b, 8); }
	IS("inotify_read") { char d[] = "/tmp/tracee-XXXXXX"; if (!mkdtemp(d)) return 9; int i = inotify_init(); inotify_add_watch(i, d, IN_ALL_EVENTS); if (!fork()) { usleep(300000); rmdir(d); _exit(0); } r = read(i, b, sizeof b) > 0; }
	IS("signalfd_read") { sigset_t s; sigemptyset(&s); sigaddset(&s, SIGUSR1); sigprocmask(SIG_BLOCK, &s, 0); int f = signalfd(-1, &s, 0); char x[128]; after(hit, getpid(), SIGUSR1); r = read(f, x, 128); }
	IS("tty_read") { int m = posix_openpt(O_RDWR | O_NOCTTY); grantpt(m); unlockpt(m); int s = open(ptsname(m), O_RDWR | O_NOCTTY); if (!fork()) { usleep(300000); put(m, 3); put(m, 0); if (write(m, "\n", 1) < 0) _exit(9); _exit(0); } r = read(s, b, 8); }
	IS("wait4") { after(nothing, 0, 0); int st; r = wait4(-1, &st, 0, 0) > 0; }
	IS("flock") { FILE *f = tmpfile(); char q[32]; sprintf(q, "/proc/self/fd/%d", fileno(f)); int g = open(q, O_RDWR); flock(g, LOCK_EX); if (!fork()) { usleep(300000); flock(g, LOCK_UN); _exit(0); } close(g); r = flock(fileno(f), LOCK_EX); }
	IS("setlkw") { FILE *f = tmpfile(); struct flock l = {F_WRLCK, SEEK_SET, 0, 0, 0}; int z[2]; if (pipe(z)) return 9; if (!fork()) { fcntl(fileno(f), F_SETLKW, &l); put(z[1], 1); usleep(300000); _exit(0); } if (read(z[0], b, 1) != 1) return 9; r = fcntl(fileno(f), F_SETLKW, &l); }
	IS("mq_timedreceive") { char q[32]; sprintf(q, "/tracee-%d", getpid()); struct mq_attr at = {0, 1, 8, 0}; mqd_t m = mq_open(q, O_RDWR | O_CREAT, 0600, &at); mq_unlink(q); struct timespec n; clock_gettime(CLOCK_REALTIME, &n); n.tv_nsec += 300000000; if (n.tv_nsec >= 1000000000) { n.tv_nsec -= 1000000000; n.tv_sec++; } r = mq_timedreceive(m, b, 8, 0, &n); }
	else return 8;
	int e = errno;
	printf("%d %s\n", r, r < 0 ? strerrorname_np(e) : "-");
	fflush(stdout);
	_exit(0);
}
