#!/bin/sh
# Trace a container of a pod that runs: by an ephemeral container in its process namespace.
# The profile "general" gives it CAP_SYS_PTRACE, which is all that kprobe needs: no
# privileged pod, no access to the node. Symbols are read through /proc/PID/root. Where the
# container's user isn't root, it must be the program's: files in /proc are its owner's.
#   ephemeral.sh POD CONTAINER
kubectl debug "$1" --target="$2" --profile=general --image=kprobe -it -- /kprobe trace -p 1 -t 10s 'p:open libc:openat path=+0($arg2):string'
