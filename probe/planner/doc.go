// Package planner plans a change of the probes of an address space: for each place that is
// wanted a jump with its detours, or a breakpoint, and why.
//
// A plan is made of requests (Wanted) on a Ground: what stands in the text, where memory is
// free, functions as their files have them. It is data. The planner touches no process and
// changes no probe: probe/engine builds a plan in the target's memory and commits it to the
// text, or forgets it.
//
//	planner.go    the steps of a plan
//	function.go   the probes of one function: tactics (probe/plan), then detours
//	stages.go     what a detour is made of, and its bytes (probe/detour)
//	giveup.go     what is given up together
//	returnway.go  how returns are seen
package planner
