// Package feed takes a process's records from the rings to the session's sink. There are three
// ways: in order of time, as hits with their thread, its name, their values and stacks; in
// blocks, if the sink decodes them on several CPUs; or as they lie in the rings, if the sink
// keeps them.
//
// A Reader is for one address space, an Outlet for a session. They know about a probe what its
// records need (Probe), and ask for it by number.
package feed
