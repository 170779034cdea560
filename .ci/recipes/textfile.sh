#!/bin/sh
# Counters in the folder of node_exporter's textfile collector: the file is replaced as a
# whole, every 15 s. It stays when kprobe ends, as it was last.
kprobe profile -q --metrics /var/lib/node_exporter/textfile_collector/kprobe.prom --wait --name postgres '%postgresql:transaction__*' >/dev/null
