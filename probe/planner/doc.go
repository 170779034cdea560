// Package planner plans a change of the probes of an address space. For each wanted place the
// result is a jump with its detours, or a breakpoint and the reason for it.
//
// A plan is made from requests (Wanted) and a Ground: what is in the text, where memory is
// free, and functions as their files have them. It is data. The planner touches no process and
// changes no probe. probe/engine builds a plan in the target's memory and commits it to the
// text, or drops it.
//
//	planner.go    the steps of a plan
//	function.go   the probes of one function: tactics (probe/plan), then detours
//	stages.go     what a detour is made of, and its bytes (probe/detour)
//	giveup.go     what is given up together
//	returnway.go  how returns are seen
package planner
