package exits

import "strings"

// plainName is a symbol's name without leading underscores and version.
func plainName(name string) string {
	name, _, _ = strings.Cut(strings.TrimLeft(name, "_"), "@")
	return name
}

// Reasons of Peculiar that are not for every way to see a return.
const (
	ReturnsTwice = "it may return twice"
	AsksCaller   = "it asks who its caller is"
)

// Peculiar says why a function whose symbol has that name needs its own return
// address; "" if it is like any other.
func Peculiar(symbol string) string {
	name := plainName(symbol)
	switch name {
	case "start":
		return "it is entered without a return address"
	case "setjmp", "sigsetjmp", "getcontext", "swapcontext", "vfork", "clone", "clone2", "clone3", "syscall":
		return ReturnsTwice
	case "dlopen", "dlsym", "dlvsym", "dlmopen", "libc_dlopen_mode", "libc_dlsym":
		return AsksCaller
	case "fentry__", "fentry", "mcount", "morestack":
		return "it works on its caller's return address"
	}
	if strings.HasPrefix(name, "x86_") && strings.Contains(name, "thunk") {
		return "it works on its own return address"
	}
	return ""
}

// Patchable says why a function whose symbol has that name can't be probed at its
// exits; "" if it may be.
func Patchable(symbol string) string {
	switch why := Peculiar(symbol); why {
	case AsksCaller:
		return ""
	case ReturnsTwice:
		if plainName(symbol) == "vfork" {
			return why // parent and child return by it, on the same stack
		}
		return "" // each call returns by its exits once
	default:
		return why
	}
}
