package fetch

// ExprOp is a form of fetch expression.
type ExprOp uint8

// The forms of fetch expressions.
const (
	ExprReg       ExprOp = iota // %REG: Reg
	ExprXMM                     // %xmmN: N
	ExprStackPtr                // $stack
	ExprStack                   // $stackN: N
	ExprArg                     // $argN: N, from 1
	ExprFArg                    // $fargN: N, from 1: the N-th floating-point argument
	ExprRetval                  // $retval
	ExprComm                    // $comm
	ExprPID                     // $pid: the thread group
	ExprTID                     // $tid: the thread
	ExprCPU                     // $cpu
	ExprTime                    // $time: CLOCK_MONOTONIC in nanoseconds
	ExprEntryTime               // $entrytime: in a return probe, the time of the call
	ExprDuration                // $duration: in a return probe, nanoseconds since the call
	ExprImm                     // \NUM: Imm
	ExprText                    // \"TEXT": Text
	ExprMem                     // @ADDR: memory at Imm
	ExprFileMem                 // @+OFFS: memory at file offset Imm
	ExprSymMem                  // @[MOD:]SYM[+offs]: Module, Text, Off
	ExprDeref                   // +|-[u]OFFS(Inner): Off
	ExprVariable                // NAME and what follows it: Text, for debug information to answer
	ExprWatch                   // $addr, $value, $old of a watchpoint: N is a WatchAddr …
	ExprAllArgs                 // $arg*, $params, $locals, $vars: every variable of a kind (Which), by debug information
)

// Expr is a fetch expression as parsed.
type Expr struct {
	Op     ExprOp
	Reg    Reg
	Which  Which // of ExprAllArgs
	User   bool  // +u and -u; a process has one memory
	N      int
	Imm    uint64
	Off    int64
	Module string
	Text   string
	Inner  *Expr // of ExprDeref

	col int // in Def.Text
}

// isMemory reports whether the expression's value lies in memory, so that
// strings and arrays can be read there.
func (e *Expr) isMemory() bool {
	switch e.Op {
	case ExprMem, ExprFileMem, ExprSymMem, ExprDeref:
		return true
	}
	return false
}
