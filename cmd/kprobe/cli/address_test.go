package cli

import "reflect"

// functionAddress is where a function of this program is in memory.
func functionAddress() uintptr { return reflect.ValueOf(newStore).Pointer() }
