// Package assess says what can be probed and how, as far as files tell. It is the one rule for
// arming probes, for checking definitions and for listing instructions.
//
// It touches no process. A caller that arms adds what it knows about one: its memory, kprobe's
// own code in it, its shadow stack (Assessor).
package assess
