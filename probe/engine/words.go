package engine

import "encoding/binary"

func le64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

func put64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }
