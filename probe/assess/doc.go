// Package assess says what can be probed and how, as far as files tell: the one rule for
// probes that are armed, for definitions that are checked and for instructions that are
// listed.
//
// It touches no process. Who arms adds what is known of one: its memory, kprobe's own
// code in it, its shadow stack (Assessor).
package assess
