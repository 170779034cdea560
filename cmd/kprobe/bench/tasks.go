package bench

import (
	"kprobe/probe/asm"
)

// What a program does with signals, tasks and system calls: each a function of the subject
// that does it once. What a tracer costs shows here, as the kernel tells it of each.

// taskKind is one of those.
type taskKind int

const (
	taskCall   taskKind = iota // a system call that does next to nothing
	taskSignal                 // a signal to itself, with a handler
	taskThread                 // a thread, until it is gone
	taskFork                   // a child, until it has been waited for
	taskExec                   // a child of vfork that executes the subject, which ends at once
	taskKinds
)

func (k taskKind) name() string {
	return [...]string{"task_call", "task_signal", "task_thread", "task_fork", "task_exec"}[k]
}

// what describes it for the report.
func (k taskKind) what() string {
	return [...]string{"a system call (getppid)", "a signal, with a handler", "a thread, until it is gone",
		"fork, until the child is gone", "vfork and execve, until the child is gone"}[k]
}

// taskHandler is the function that has signals handled. It is called once.
const taskHandler = "task_handler"

// System calls of x86-64, and what they are given.
const (
	sysSigaction = 13
	sysSigreturn = 15
	sysFork      = 57
	sysVfork     = 58
	sysExecve    = 59
	sysExit      = 60
	sysWait4     = 61
	sysKill      = 62
	sysGetppid   = 110
	sysFutex     = 202

	sigUser     = 10         // SIGUSR1
	saRestorer  = 0x04000000 // SA_RESTORER
	sigsetSize  = 8
	clearTID    = 0x200000 // CLONE_CHILD_CLEARTID
	taskStack   = maxThreads - 1
	aliveAt     = 0x480 // where a control block has whether its thread is there
	statusSpace = 16
)

// tasks emits the functions. They change no register but those that calls may.
func (w *writer) tasks() {
	system := func(n int) { w.MovImm(asm.AX, uint64(n)); w.Syscall() }
	w.fn(taskCall.name(), func() { system(sysGetppid); w.Ret() })
	w.fn(taskSignal.name(), func() {
		w.Load(asm.W32, asm.DI, asm.SegAbs(asm.FS, tidAt))
		w.MovImm(asm.SI, sigUser)
		system(sysKill)
		w.Ret()
	})
	w.fn(taskHandler, func() { w.handle(system) })
	w.fn(taskThread.name(), func() { w.thread(system) })
	w.fn(taskFork.name(), func() {
		system(sysFork)
		w.await(system, func() { w.exit(system, sysExitGroup, 0) })
	})
	w.fn(taskExec.name(), func() { w.execute(system) })
}

// exit emits the end of a task.
func (w *writer) exit(system func(int), call int, status uint64) {
	w.MovImm(asm.DI, status)
	system(call)
}

// handle has a signal be handled by a function that returns.
func (w *writer) handle(system func(int)) {
	handler, restorer, over := w.NewLabel(), w.NewLabel(), w.NewLabel()
	w.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
	w.Push(asm.AX) // the mask
	w.Lea(asm.AX, asm.Rel(restorer))
	w.Push(asm.AX)
	w.PushImm(saRestorer)
	w.Lea(asm.AX, asm.Rel(handler))
	w.Push(asm.AX)
	w.MovImm(asm.DI, sigUser)
	w.Mov(asm.W64, asm.SI, asm.SP)
	w.Op(asm.Xor, asm.W32, asm.DX, asm.DX)
	w.MovImm(asm.R10, sigsetSize)
	system(sysSigaction)
	w.OpImm(asm.Add, asm.W64, asm.SP, 32)
	w.Jmp(over)
	w.Bind(handler)
	w.Ret()
	w.Bind(restorer)
	system(sysSigreturn)
	w.Bind(over)
	w.Ret()
}

// thread makes a thread as C libraries do, with a control block and a stack of its own,
// and waits until the kernel says that it is gone.
func (w *writer) thread(system func(int)) {
	const wait = 0 // FUTEX_WAIT
	child, again, gone := w.NewLabel(), w.NewLabel(), w.NewLabel()
	w.MovImm(asm.R8, w.data.tcbs+taskStack*tcbSize)
	w.Store(asm.W64, asm.At(asm.R8, 0), asm.R8)
	w.Store(asm.W64, asm.At(asm.R8, selfAt), asm.R8)
	w.StoreImm(asm.W32, asm.At(asm.R8, aliveAt), 1)
	w.MovImm(asm.DI, threadFlags|ownTLS|clearTID)
	w.MovImm(asm.SI, w.data.stacks+taskStack*stackSize)
	w.Lea(asm.DX, asm.At(asm.R8, tidAt))
	w.Lea(asm.R10, asm.At(asm.R8, aliveAt))
	system(sysClone)
	w.Test(asm.W64, asm.AX, asm.AX)
	w.Jcc(asm.E, child)
	w.failed()
	w.Bind(again)
	w.MovImm(asm.DI, w.data.tcbs+taskStack*tcbSize+aliveAt)
	w.OpMemImm(asm.Cmp, asm.W32, asm.At(asm.DI, 0), 0)
	w.Jcc(asm.E, gone)
	w.MovImm(asm.SI, wait)
	w.MovImm(asm.DX, 1)
	w.Op(asm.Xor, asm.W32, asm.R10, asm.R10)
	system(sysFutex)
	w.Jmp(again)
	w.Bind(gone)
	w.Ret()
	w.Bind(child)
	w.exit(system, sysExit, 0)
}

// execute makes a child execute the subject with an argument, upon which that ends.
func (w *writer) execute(system func(int)) {
	path, over := w.NewLabel(), w.NewLabel()
	w.Jmp(over)
	w.Bind(path)
	w.Raw([]byte("/proc/self/exe\x00")...)
	w.Bind(over)
	w.Op(asm.Xor, asm.W32, asm.AX, asm.AX)
	w.Lea(asm.SI, asm.Rel(path))
	w.Push(asm.AX)
	w.Push(asm.SI)
	w.Push(asm.SI)
	system(sysVfork)
	w.await(system, func() {
		w.Lea(asm.DI, asm.Rel(path))
		w.Mov(asm.W64, asm.SI, asm.SP)
		w.Lea(asm.DX, asm.At(asm.SP, 2*8)) // the null behind the arguments
		system(sysExecve)
		w.exit(system, sysExitGroup, 127)
	}, asm.AX, asm.AX, asm.AX)
}

// await emits, behind the call that makes a child, what the child does and that its parent
// waits until it is gone, pops registers and returns. A child that doesn't end well ends the
// program.
func (w *writer) await(system func(int), child func(), pop ...asm.Reg) {
	parent := w.NewLabel()
	w.Test(asm.W64, asm.AX, asm.AX)
	w.Jcc(asm.NE, parent)
	child()
	w.Bind(parent)
	w.failed()
	w.Mov(asm.W64, asm.DI, asm.AX)
	w.OpImm(asm.Sub, asm.W64, asm.SP, statusSpace)
	w.Mov(asm.W64, asm.SI, asm.SP)
	w.StoreImm(asm.W32, asm.At(asm.SP, 0), -1)
	w.Op(asm.Xor, asm.W32, asm.DX, asm.DX)
	w.Op(asm.Xor, asm.W32, asm.R10, asm.R10)
	system(sysWait4)
	w.Load(asm.W32, asm.AX, asm.At(asm.SP, 0))
	w.OpImm(asm.Add, asm.W64, asm.SP, statusSpace)
	w.Neg(asm.W64, asm.AX) // a status other than 0 is an error
	w.failed()
	for _, r := range pop {
		w.Pop(r)
	}
	w.Ret()
}

// failed ends the program if AX is an error.
func (w *writer) failed() {
	well := w.NewLabel()
	w.Test(asm.W64, asm.AX, asm.AX)
	w.Jcc(asm.GE, well)
	w.Hlt()
	w.Bind(well)
}
