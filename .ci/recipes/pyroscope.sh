#!/bin/sh
# Who allocates: hits of malloc by stack, as a profile for Pyroscope.
#   pyroscope.sh PID SERVER
kprobe record -q -t 10s -p "$1" -o /tmp/malloc.kprobe 'p:malloc libc:malloc size=$arg1:u64 stack=16'
kprobe report /tmp/malloc.kprobe --pprof /tmp/malloc.pb.gz
curl -sf --data-binary @/tmp/malloc.pb.gz "$2/ingest?name=malloc&format=pprof"
