package fetch

import "syscall"

// Code identifies an error of the definition language. The zero Code is no error.
type Code uint8

// The errors, by the kernel's names (kernel/trace/trace_probe.h, ERRORS) and,
// from FiltInvalidOp on, those of event filters
// (kernel/trace/trace_events_filter.c, ERRORS). The last ones are kprobe's.
const (
	_ Code = iota
	ArgIdxTooBig
	ArgNameTooLong
	ArgTooLong
	ArrayNoClose
	ArrayTooBig
	BadAddrSuffix
	BadArgName
	BadArgNum
	BadArrayNum
	BadArraySuffix
	BadBitfield
	BadDerefOffs
	BadEventName
	BadFetchArg
	BadFileOffs
	BadGroupName
	BadHyphen
	BadImm
	BadInsnBndry
	BadMaxAct
	BadMaxActType
	BadMemAddr
	BadProbeAddr
	BadRefCnt
	BadRefCntSuffix
	BadRegName
	BadRetprobe
	BadStackNum
	BadString
	BadSymString
	BadType
	BadType4Str
	BadUprobeOffs
	BadVar
	BadVarArgs
	CommCantDeref
	DerefNeedBrace
	DerefOpenBrace
	DiffArgType
	DiffProbeType
	DoubleArgs
	EventExist
	EventTooBig
	EventTooLong
	FailRegProbe
	FileNotFound
	GroupTooLong
	ImmStrNoClose
	MaxActTooBig
	NeedStringType
	NoFentryArgs
	NonUniqSymbol
	NoSupBTFArg
	NoSupDatArg
	NoSupPerCPU
	NoArgBody
	NoArgName
	NoBTFArg
	NoBTFEntry
	NoBTFField
	NoEPFilter
	NoEventName
	NoGroupName
	NoPtrStrct
	NoRegularFile
	NoRetval
	RefCntOpenBrace
	RetvalOnProbe
	SameProbe
	TooManyArgs
	TooManyEArgs
	TooManyNested
	TooManyOps
	UsedArgName

	FiltInvalidOp
	FiltTooManyOpen
	FiltTooManyClose
	FiltMissingQuote
	FiltMissingBraceOpen
	FiltMissingBraceClose
	FiltOperandTooLong
	FiltExpectString
	FiltExpectDigit
	FiltIllegalFieldOp
	FiltFieldNotFound
	FiltIllegalIntVal
	FiltTooManyPreds
	FiltInvalidFilter
	FiltInvalidValue
	FiltNoFunction
	FiltInvalidCPUList
	FiltNoFilter

	NoPlace
	BadProbeType
	NoSuchEvent
	NoMemAddr

	BadAccessAddr
	BadAccessFmt
	BadAccessLen
	BadAccessType

	BadTrigger
	BadAction
	BadTrigCount
	codeCount
)

type codeFacts struct {
	id    string // the kernel's, or ours in the same spelling
	text  string
	errno syscall.Errno
}

// facts is one row of the table of errors; it is a switch by index and not a
// map so that it is data without state.
func (c Code) facts() codeFacts {
	if c == 0 || c >= codeCount {
		return codeFacts{"UNKNOWN", "Unknown error", syscall.EINVAL}
	}
	return codeTable()[c]
}

// ID returns the kernel's name of the error, such as "BAD_ARG_NUM".
func (c Code) ID() string { return c.facts().id }

// Text returns the kernel's text of the error, such as "Invalid argument number".
func (c Code) Text() string { return c.facts().text }

// Errno is the number with which the kernel's write of such a definition fails.
func (c Code) Errno() syscall.Errno { return c.facts().errno }

// String is ID.
func (c Code) String() string { return c.ID() }
