package engine

import "encoding/binary"

func Le64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

func Put64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }
