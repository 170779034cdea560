package cli

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"kprobe/fetch"
)

// definitionHint says what to write instead of a definition that is wrong by
// its text alone; "" where the kernel's message says enough.
func definitionHint(e *fetch.SyntaxError) string {
	if !fetch.IsText(e.Input) {
		return "this is not text; -F takes a file of definitions, one a line"
	}
	word := wordAt(e.Input, e.Col)
	switch e.Code {
	case fetch.NoPlace:
		return colonHint(e.Input)
	case fetch.BadProbeAddr, fetch.BadProbeType:
		return placeHint(e.Input)
	case fetch.BadAddrSuffix:
		if strings.HasPrefix(word, "%") || strings.Contains(word, ":%") {
			return usdtHint
		}
	case fetch.BadString:
		arg, kind := body(word)
		hint := "a string is read from memory: write +0(" + arg + "):" + kind + " for the text that " + arg + " points to"
		if strings.HasPrefix(arg, "$arg") || strings.HasPrefix(arg, "$retval") {
			hint += "; with debug information, " + arg + " alone is printed by its type, such as a string of Go"
		}
		return hint
	case fetch.RetvalOnProbe:
		return "a function has a return value when it returns: use a return probe, r PLACE $retval"
	case fetch.NoArgBody, fetch.BadFetchArg, fetch.BadArgName, fetch.NoArgName:
		return shellHint(e.Input)
	case fetch.BadRegName:
		return registerHint(word)
	case fetch.BadType:
		return typeHint(word)
	case fetch.BadVar:
		if strings.HasPrefix(e.Input, "w:") || strings.HasPrefix(e.Input, "w ") {
			return "" // the error says what a watchpoint has
		}
		return variableHint(word)
	case fetch.NoBTFArg:
		return dollarHint(word)
	case fetch.FiltFieldNotFound:
		return fieldHint(e.Input)
	case fetch.FiltExpectString:
		return "a text is compared by ==, != or ~ (a shell pattern), with a value in double quotes"
	case fetch.FiltInvalidOp:
		if e.Col >= len(e.Input) {
			return "a filter is NAME OPERATOR VALUE, such as: if size > 0"
		}
	case fetch.FiltTooManyPreds:
		rest := " " + e.Input[min(max(e.Col-1, 0), len(e.Input)):] + " "
		if strings.Contains(rest, " and ") || strings.Contains(rest, " or ") {
			return "terms of a filter are joined by && and ||"
		}
	case fetch.FiltTooManyOpen:
		return "a ) is missing"
	case fetch.BadAccessFmt, fetch.BadAccessType:
		return "a watchpoint is w [r|w|rw]@ADDR[:LEN], or w [r|w|rw]@VARIABLE, such as: w rw@counter"
	case fetch.BadAccessLen:
		return "a watchpoint covers 1, 2, 4 or 8 bytes"
	case fetch.ArrayTooBig:
		if _, kind := body(word); !strings.HasPrefix(kind, "bytes[") {
			return "an array has at most " + strconv.Itoa(fetch.MaxArray) + " elements"
		}
		return "at most " + strconv.Itoa(fetch.MaxString) + " bytes are recorded"
	case fetch.BadBitfield:
		return "a bitfield is b<WIDTH>@<OFFSET>/<SIZE> and lies within SIZE, which is 8, 16, 32 or 64: b4@2/8"
	case fetch.MaxActTooBig:
		return "a return probe follows at most 4096 calls at a time"
	case fetch.UsedArgName:
		return "give one of them another name: NAME=ARGUMENT"
	}
	return ""
}

// wordAt gives the word of a definition in which a byte is.
func wordAt(input string, col int) string {
	col = min(max(col, 0), len(input))
	from := strings.LastIndexByte(input[:col], ' ') + 1
	word, _, _ := strings.Cut(input[from:], " ")
	return word
}

// body takes a fetch argument apart: what is fetched, and the type.
func body(word string) (arg, kind string) {
	if i := strings.IndexByte(word, '='); i >= 0 {
		word = word[i+1:]
	}
	if i := strings.LastIndexByte(word, ':'); i >= 0 {
		return word[:i], word[i+1:]
	}
	return word, "string"
}

// colonHint is for p:libc:malloc, in which the place was taken for a name.
func colonHint(input string) string {
	kind, place, ok := strings.Cut(input, ":")
	if !ok || !strings.Contains(place, ":") || strings.Contains(place, " ") {
		return "write the place after p, r or j and the event's name, if any: p:NAME libc:malloc"
	}
	return "a blank follows " + kind + ", a colon begins an event's name: write " + kind + " " + place
}

// usdtHint is for what looks like the place of a statically defined probe.
const usdtHint = "a statically defined probe is [MOD:]%PROVIDER:NAME; kprobe functions --usdt lists them"

// placeHint answers other tools' forms of a probe, and names that can be none.
func placeHint(input string) string {
	first, _, _ := strings.Cut(input, " ")
	if h := formHint(first); h != "" {
		return h
	}
	if strings.ContainsAny(first, "=($") {
		return "a definition is one word: put it in single quotes, 'libc:malloc size=$arg1:u64'"
	}
	if i := strings.LastIndexByte(first, '+'); i > 0 {
		return first[i+1:] + " is not an offset: write SYM+16 or SYM+0x10"
	}
	if strings.ContainsAny(first, "{}()[]") || !strings.Contains(first, "-") {
		return ""
	}
	return "no symbol has a - in its name; kprobe functions -p PID lists the names"
}

// formHint answers other tools' forms of a probe. first is a definition up to its first blank.
func formHint(first string) string {
	if strings.HasPrefix(first, "%") || strings.Contains(first, ":%") {
		return usdtHint
	}
	provider, place, ok := strings.Cut(first, ":")
	if ok {
		switch provider {
		case "uprobe", "u":
			return "this is bpftrace's form; here it is 'p " + cmp.Or(place, "libc:malloc") + " n=$arg1'"
		case "uretprobe", "ur":
			return "this is bpftrace's form; here it is 'r " + cmp.Or(place, "libc:malloc") + " ret=$retval'"
		case "usdt", "U":
			return "this is bpftrace's form; here a USDT probe is 'p [MOD:]%PROVIDER:NAME'; kprobe functions --usdt lists them"
		case "kprobe", "kretprobe", "kfunc", "fentry", "fexit", "tracepoint", "t", "k":
			return "kprobe probes processes; the kernel's own functions and tracepoints are for perf and bpftrace"
		}
	}
	return ""
}

// shellHint is for definitions in which the shell has replaced $arg1 by nothing.
func shellHint(input string) string {
	for word := range strings.FieldsSeq(input) {
		_, arg, ok := strings.Cut(word, "=")
		if ok && (arg == "" || arg[0] == ':') || strings.Contains(word, "()") {
			return "the shell replaces $arg1 in double quotes: put the definition in single quotes"
		}
	}
	return ""
}

// registerHint answers the names of parts of registers, and of none.
func registerHint(word string) string {
	arg, _ := body(word)
	name := strings.TrimLeft(arg, "%+-0123456789(")
	name = strings.TrimRight(name, ")")
	if whole, size, ok := partOf(name); ok {
		return "write a part of a register as the register and a type: %" + whole + ":" + size
	}
	return "the registers are %ax %bx %cx %dx %si %di %bp %sp %ip %flags, %r8 to %r15 and %xmm0 to %xmm15"
}

// partOf gives the register of which a name means a part, and the part's type.
func partOf(name string) (whole, size string, ok bool) {
	legacy := []string{"ax", "bx", "cx", "dx", "si", "di", "bp", "sp"}
	if base, found := strings.CutPrefix(name, "e"); found && slices.Contains(legacy, base) {
		return base, "u32", true
	}
	if len(name) == 2 && name[1] == 'l' && strings.Contains("abcd", name[:1]) {
		return name[:1] + "x", "u8", true
	}
	for suffix, size := range map[string]string{"d": "u32", "w": "u16", "b": "u8"} {
		if base, found := strings.CutSuffix(name, suffix); found && strings.HasPrefix(base, "r") && len(base) > 1 && base[1] >= '0' && base[1] <= '9' {
			return base, size, true
		}
	}
	return "", "", false
}

// otherTypes are what people write for a type elsewhere, and its name here.
func otherTypes() map[string]string {
	return map[string]string{
		"int": "s32", "d": "s32", "i": "s32", "int32": "s32", "int32_t": "s32", "s": "string", "str": "string", "char*": "string",
		"unsigned": "u32", "uint": "u32", "uint32": "u32", "uint32_t": "u32", "u": "u64", "x": "x64", "hex": "x64", "p": "x64",
		"ptr": "x64", "pointer": "x64", "long": "s64", "int64": "s64", "int64_t": "s64", "uint64": "u64", "uint64_t": "u64",
		"size_t": "u64", "short": "s16", "int16": "s16", "uint16": "u16", "int8": "s8", "uint8": "u8", "byte": "u8", "bool": "u8",
		"float": "f32", "double": "f64", "sym": "symbol", "text": "string",
	}
}

func typeHint(word string) string {
	_, kind := body(word)
	if here, ok := otherTypes()[kind]; ok {
		return "write :" + here + "; kprobe help events lists the types"
	}
	return "the types are u8 to u64, s8 to s64, x8 to x64, f32, f64, char, string, symbol, symstr, %pd, b<WIDTH>@<OFFSET>/<SIZE> and struct; [N] after one makes an array"
}

func variableHint(word string) string {
	arg, _ := body(word)
	i := strings.IndexByte(arg, '$')
	if i < 0 {
		return ""
	}
	name := strings.TrimRight(arg[i+1:], ")")
	switch {
	case name == "duration" || name == "entrytime":
		return "use a return probe: r PLACE $" + name
	case name == "ret" || name == "return" || name == "rv" || name == "result":
		return "the return value is $retval"
	case name != "" && strings.Trim(name, "0123456789") == "":
		return "the arguments are $arg1, $arg2, …; $stack0, $stack1, … are words of the stack"
	case strings.HasPrefix(name, "arg"):
		return "arguments are counted from 1: $arg1, $arg2, …; $arg* is all of them"
	}
	if registers := strings.Fields("ax bx cx dx si di bp sp"); slices.Contains(registers, strings.TrimPrefix(name, "r")) {
		return "a register has a %: %" + strings.TrimPrefix(name, "r")
	}
	return "there are $arg1…, $retval, $stack, $comm, $pid, $tid, $cpu, $time, $entrytime, $duration, $params, $locals, $vars; kprobe help events explains them"
}

// dollarHint is for names that mean something with a $ alone.
func dollarHint(word string) string {
	name, _ := body(word)
	index, isArg := strings.CutPrefix(name, "arg")
	if isArg && index != "" && strings.Trim(index, "0123456789") == "" || slices.Contains(strings.Fields("retval comm stack tid pid cpu time entrytime duration"), name) {
		return "did you mean $" + name + "?"
	}
	return ""
}

// fieldHint lists what a filter can name.
func fieldHint(input string) string {
	if t, err := fetch.ParseTrigger(input); err == nil {
		return "a trigger's filter compares what " + t.Event + " fetches, by name, and pid, tid, cpu, comm"
	}
	before, filter, _ := strings.Cut(input, " if ")
	if f := strings.TrimLeft(filter, "(! "); f != "" && strings.ContainsRune("$%@+-", rune(f[0])) {
		arg, _, _ := strings.Cut(f, " ")
		return "a filter compares what the definition fetches, by its name: n=" + strings.TrimRight(arg, ")") + " if n …"
	}
	d, err := fetch.Parse(before)
	if err != nil || len(d.Args) == 0 {
		return "the definition fetches nothing; a filter compares what it fetches, and pid, tid, cpu, comm"
	}
	var names []string
	for i := range d.Args {
		names = append(names, d.Args[i].Name)
	}
	return "the definition fetches " + strings.Join(names, ", ") + "; every event has pid, tid, cpu and comm"
}
