// Package insn reads x86-64 machine code: how long an instruction is, where its fields lie,
// what it does to registers and control flow, where the instructions of a function begin, and
// how an instruction can be made to run at another address.
//
// All of it is pure: bytes in, bytes or facts out. Nothing here touches a process, and nothing
// panics on any input. Everything is safe for concurrent use by several goroutines.
//
// The tables are made from the Intel Software Developer's Manual, volume 2, and the AMD
// Architecture Programmer's Manual, volumes 3 to 5. Where the two vendors differ (a 66 prefix
// on a near branch), lengths follow Intel, and Relocate refuses.
package insn
