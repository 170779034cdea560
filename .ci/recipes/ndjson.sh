#!/bin/sh
# Hits as JSON, a line each, for the OpenTelemetry Collector: see collector.yaml.
kprobe trace -q --format json --time wall --wait --name postgres -o /var/log/kprobe/hits.ndjson 'p:pg/query %postgresql:query__start query=$arg1:string'
