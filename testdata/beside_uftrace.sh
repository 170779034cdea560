#!/bin/sh
# Beside uftrace: one program, built with -pg for uftrace and without for kprobe, every call
# of three functions recorded at its entry and its return. For each of five rounds it
# prints the processor time of the program alone, under uftrace record and under kprobe
# record; then the bytes of the recordings, and what of the calls is in them.
# Usage: testdata/beside_uftrace.sh [KPROBE] [REQUESTS]
set -e
kprobe=${1:-kprobe}
n=${2:-100000}
here=$(dirname "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cc -O1 -g -o "$dir/plain" "$here/beside_uftrace.c"
cc -O1 -g -pg -o "$dir/built" "$here/beside_uftrace.c"
for round in 1 2 3 4 5; do
	plain=$("$dir/plain" "$n" 2>&1 | cut -d' ' -f1)
	theirs=$(uftrace record --no-event -d "$dir/uftrace.data" "$dir/built" "$n" 2>&1 | tail -1 | cut -d' ' -f1)
	ours=$("$kprobe" record -q --ring 64M -o "$dir/calls.kprobe" --calls leaf branch request -- "$dir/plain" "$n" 2>&1 | tail -1 | cut -d' ' -f1)
	echo "$plain s alone, $theirs s with uftrace, $ours s with kprobe"
done
du -sb "$dir/uftrace.data" "$dir/calls.kprobe" | sed "s|$dir/||"
uftrace report -d "$dir/uftrace.data" 2>/dev/null | grep -E 'leaf|branch|request'
"$kprobe" report "$dir/calls.kprobe"
