package cli

import (
	"bufio"
	"errors"
	"os"
	"strconv"
	"strings"

	"kprobe/fetch"
	"kprobe/probe"
	"kprobe/symbols"
)

// lookupHint says what to write where a place names what the process does not
// have.
func lookupHint(err error) string {
	var unmapped *symbols.NotMappedError
	if errors.As(err, &unmapped) {
		return unmappedHint(unmapped)
	}
	var missing *symbols.NotFoundError
	if errors.As(err, &missing) && missing.Kind == "" && kernelFunction(missing.What) {
		return kernelHint(missing.What)
	}
	if missing != nil && missing.OtherBuild != nil {
		return missing.Stripped + " is stripped, and " + missing.OtherBuild.Error() + "; install the debug file of this build"
	}
	if missing != nil && missing.Stripped != "" {
		return missing.Stripped + " is stripped: its functions that are not exported have no names; install its debug package (-dbgsym, -debuginfo), or name debuginfod servers in DEBUGINFOD_URLS"
	}
	var data *symbols.NotCodeError
	var def *probe.DefError
	if errors.As(err, &data) && errors.As(err, &def) && isNumber(def.Def.Text) {
		return def.Def.Text + " is taken as an address; to name several processes, write -p PID,PID"
	}
	return ""
}

func unmappedHint(e *symbols.NotMappedError) string {
	if h := formHint(e.Module + ":"); h != "" {
		return h
	}
	switch {
	case strings.ContainsAny(e.Module, "=($"):
		return "a definition is one word: put it in single quotes, 'libc:malloc size=$arg1:u64'"
	case strings.HasSuffix(e.Module, ".c"), strings.HasSuffix(e.Module, ".go"), strings.HasSuffix(e.Module, ".rs"):
		return "after a source file, write one line: " + e.Module + ":12; kprobe show --lines lists those with code"
	case strings.Contains(e.Module, "/"):
		if _, err := os.Stat(e.Module); errors.Is(err, os.ErrNotExist) {
			return e.Module + ": no such file"
		}
		if info, err := os.Stat(e.Module); err == nil && info.IsDir() {
			return e.Module + " is a folder; -x takes a program or a library"
		}
		var format *symbols.FormatError
		if _, err := symbols.OpenFile(e.Module); errors.As(err, &format) {
			return format.Path + ": " + format.What + " " + format.Why + "; -x takes a program or a library"
		}
		base := e.Module[strings.LastIndexByte(e.Module, '/')+1:]
		for _, name := range e.Candidates {
			if name == base {
				return "the process has another file of this name: kprobe functions -p PID, or grep " + base + " /proc/PID/maps, tells its path"
			}
		}
	case e.Static:
		return "the program is static and has its libraries' functions itself: write the function alone, without " + e.Module + ":"
	}
	return "kprobe functions -p PID lists what the process has mapped; kprobe trace --pending waits for a library that it loads, or a program that it executes, later"
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 64)
	return err == nil
}

// kernelHint is for functions that only the kernel has.
func kernelHint(name string) string {
	return name + " is a function of the kernel; kprobe probes processes, perf probe and bpftrace probe the kernel"
}

// kernelFunction reports whether the kernel has a function of this name.
func kernelFunction(name string) bool {
	if name == "" || strings.ContainsAny(name, "*?[@") {
		return false
	}
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return false
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// Lines are "ADDRESS t NAME", of a module with "\t[MODULE]" behind.
		fields := strings.Fields(lines.Text())
		if len(fields) >= 3 && fields[2] == name && strings.EqualFold(fields[1], "t") {
			return true
		}
	}
	return false
}

// textHint is definitionHint for an error of the text alone, "" for others.
func textHint(err error) string {
	var syntax *fetch.SyntaxError
	if errors.As(err, &syntax) && (syntax.Err == nil || syntax.Code == fetch.NoBTFArg) {
		return definitionHint(syntax)
	}
	return ""
}
