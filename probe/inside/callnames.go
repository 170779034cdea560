package inside

import "strings"

// The names of x86-64's system calls (arch/x86/entry/syscalls/syscall_64.tbl), from
// 0 and from lateFirst on.
const lateFirst = 424

const earlyNames = `read write open close stat fstat lstat poll lseek mmap mprotect munmap brk rt_sigaction
rt_sigprocmask rt_sigreturn ioctl pread64 pwrite64 readv writev access pipe select sched_yield
mremap msync mincore madvise shmget shmat shmctl dup dup2 pause nanosleep getitimer alarm
setitimer getpid sendfile socket connect accept sendto recvfrom sendmsg recvmsg shutdown bind
listen getsockname getpeername socketpair setsockopt getsockopt clone fork vfork execve exit
wait4 kill uname semget semop semctl shmdt msgget msgsnd msgrcv msgctl fcntl flock fsync
fdatasync truncate ftruncate getdents getcwd chdir fchdir rename mkdir rmdir creat link unlink
symlink readlink chmod fchmod chown fchown lchown umask gettimeofday getrlimit getrusage
sysinfo times ptrace getuid syslog getgid setuid setgid geteuid getegid setpgid getppid getpgrp
setsid setreuid setregid getgroups setgroups setresuid getresuid setresgid getresgid getpgid
setfsuid setfsgid getsid capget capset rt_sigpending rt_sigtimedwait rt_sigqueueinfo
rt_sigsuspend sigaltstack utime mknod uselib personality ustat statfs fstatfs sysfs getpriority
setpriority sched_setparam sched_getparam sched_setscheduler sched_getscheduler
sched_get_priority_max sched_get_priority_min sched_rr_get_interval mlock munlock mlockall
munlockall vhangup modify_ldt pivot_root _sysctl prctl arch_prctl adjtimex setrlimit chroot
sync acct settimeofday mount umount2 swapon swapoff reboot sethostname setdomainname iopl
ioperm create_module init_module delete_module get_kernel_syms query_module quotactl nfsservctl
getpmsg putpmsg afs_syscall tuxcall security gettid readahead setxattr lsetxattr fsetxattr
getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr
fremovexattr tkill time futex sched_setaffinity sched_getaffinity set_thread_area io_setup
io_destroy io_getevents io_submit io_cancel get_thread_area lookup_dcookie epoll_create
epoll_ctl_old epoll_wait_old remap_file_pages getdents64 set_tid_address restart_syscall
semtimedop fadvise64 timer_create timer_settime timer_gettime timer_getoverrun timer_delete
clock_settime clock_gettime clock_getres clock_nanosleep exit_group epoll_wait epoll_ctl tgkill
utimes vserver mbind set_mempolicy get_mempolicy mq_open mq_unlink mq_timedsend mq_timedreceive
mq_notify mq_getsetattr kexec_load waitid add_key request_key keyctl ioprio_set ioprio_get
inotify_init inotify_add_watch inotify_rm_watch migrate_pages openat mkdirat mknodat fchownat
futimesat newfstatat unlinkat renameat linkat symlinkat readlinkat fchmodat faccessat pselect6
ppoll unshare set_robust_list get_robust_list splice tee sync_file_range vmsplice move_pages
utimensat epoll_pwait signalfd timerfd_create eventfd fallocate timerfd_settime timerfd_gettime
accept4 signalfd4 eventfd2 epoll_create1 dup3 pipe2 inotify_init1 preadv pwritev
rt_tgsigqueueinfo perf_event_open recvmmsg fanotify_init fanotify_mark prlimit64
name_to_handle_at open_by_handle_at clock_adjtime syncfs sendmmsg setns getcpu process_vm_readv
process_vm_writev kcmp finit_module sched_setattr sched_getattr renameat2 seccomp getrandom
memfd_create kexec_file_load bpf execveat userfaultfd membarrier mlock2 copy_file_range preadv2
pwritev2 pkey_mprotect pkey_alloc pkey_free statx io_pgetevents rseq`

const lateNames = `pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen
fsconfig fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2
process_madvise epoll_pwait2 mount_setattr quotactl_fd landlock_create_ruleset
landlock_add_rule landlock_restrict_self memfd_secret process_mrelease futex_waitv
set_mempolicy_home_node cachestat fchmodat2 map_shadow_stack futex_wake futex_wait
futex_requeue statmount listmount lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal
setxattrat getxattrat listxattrat removexattrat open_tree_attr file_getattr file_setattr listns
rseq_slice_yield`

// callName is the name of a system call; "" is unknown.
func callName(nr uint64) string {
	list, first := earlyNames, uint64(0)
	if nr >= lateFirst {
		list, first = lateNames, lateFirst
	}
	names := strings.Fields(list)
	if nr-first >= uint64(len(names)) {
		return ""
	}
	return names[nr-first]
}

// The parameters of system calls that may wait: name and kind of each. Kinds are fd,
// num (signed), uint, hex, ms (a timeout in milliseconds), time (a timespec), zero-ended
// text (text), and sockaddr, whose size is the next argument.
var callParams = map[string]string{
	"read": "fd:fd buf:hex count:uint", "write": "fd:fd buf:hex count:uint",
	"pread64": "fd:fd buf:hex count:uint offset:num", "pwrite64": "fd:fd buf:hex count:uint offset:num",
	"readv": "fd:fd iov:hex iovcnt:uint", "writev": "fd:fd iov:hex iovcnt:uint",
	"open": "pathname:text flags:hex mode:hex", "openat": "dirfd:fd pathname:text flags:hex", "openat2": "dirfd:fd pathname:text",
	"close": "fd:fd", "stat": "pathname:text", "lstat": "pathname:text", "fstat": "fd:fd",
	"newfstatat": "dirfd:fd pathname:text", "statx": "dirfd:fd pathname:text", "access": "pathname:text",
	"unlink": "pathname:text", "rename": "oldpath:text newpath:text", "mkdir": "pathname:text", "rmdir": "pathname:text",
	"getdents64": "fd:fd", "ftruncate": "fd:fd length:num", "truncate": "path:text length:num",
	"poll": "fds:hex nfds:uint timeout:ms", "ppoll": "fds:hex nfds:uint timeout:time",
	"select":     "nfds:num readfds:hex writefds:hex exceptfds:hex timeout:hex",
	"pselect6":   "nfds:num readfds:hex writefds:hex exceptfds:hex timeout:time",
	"epoll_wait": "epfd:fd events:hex maxevents:num timeout:ms", "epoll_pwait": "epfd:fd events:hex maxevents:num timeout:ms",
	"epoll_pwait2": "epfd:fd events:hex maxevents:num timeout:time",
	"ioctl":        "fd:fd request:hex arg:hex", "flock": "fd:fd operation:flock", "fcntl": "fd:fd cmd:fcntl arg:hex",
	"fsync": "fd:fd", "fdatasync": "fd:fd", "sync_file_range": "fd:fd", "syncfs": "fd:fd", "msync": "addr:hex length:uint",
	"connect": "sockfd:fd addr:sockaddr", "accept": "sockfd:fd", "accept4": "sockfd:fd",
	"sendto": "sockfd:fd buf:hex len:uint", "recvfrom": "sockfd:fd buf:hex len:uint",
	"sendmsg": "sockfd:fd msg:hex", "recvmsg": "sockfd:fd msg:hex", "sendmmsg": "sockfd:fd msgvec:hex vlen:uint",
	"recvmmsg": "sockfd:fd msgvec:hex vlen:uint", "sendfile": "out_fd:fd in_fd:fd offset:hex count:uint",
	"splice": "fd_in:fd off_in:hex fd_out:fd", "copy_file_range": "fd_in:fd off_in:hex fd_out:fd",
	"futex": "uaddr:hex op:futex val:uint timeout:time", "futex_wait": "uaddr:hex val:uint", "futex_waitv": "waiters:hex nr:uint",
	"nanosleep": "duration:time", "clock_nanosleep": "clockid:num flags:hex time:time", "pause": "",
	"wait4": "pid:num", "waitid": "which:num pid:num", "rt_sigsuspend": "", "rt_sigtimedwait": "set:hex info:hex timeout:time",
	"semop": "semid:num", "semtimedop": "semid:num", "msgrcv": "msqid:num", "msgsnd": "msqid:num",
	"mq_timedreceive": "mqdes:fd", "mq_timedsend": "mqdes:fd",
	"io_getevents": "ctx:hex min_nr:num nr:num events:hex timeout:time", "io_uring_enter": "fd:fd to_submit:uint min_complete:uint",
	"mmap": "addr:hex length:uint", "munmap": "addr:hex length:uint", "mprotect": "addr:hex length:uint", "madvise": "addr:hex length:uint",
	"execve": "pathname:text", "vfork": "", "exit_group": "status:num", "restart_syscall": "", "sched_yield": "",
	"ptrace": "request:num pid:num", "kill": "pid:num sig:num", "getrandom": "buf:hex count:uint", "userfaultfd": "flags:hex",
}
