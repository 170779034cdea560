// Package feed is the way of a process's records from the rings to the session's sink: in
// order of time, as hits with their thread, its name, their values and stacks; in blocks,
// where the sink works them out on several CPUs; or as they lie in the rings, where it keeps
// them.
//
// A Reader is for one address space, an Outlet for a session. Of a probe they know what its
// records need (Probe), and ask for it by number.
package feed
