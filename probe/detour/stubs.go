package detour

import "encoding/binary"

// emitStubs emits the stubs and return trampolines of all instances, which call body and continue at common. There may be
// thousands, so they are copies of one another.
func (r *returning) emitStubs(body, common uint64) {
	const called, jumped = trampolineOff, stubPush + 10 // the ends of the two instructions that lead elsewhere
	stub := [stubSize]byte{
		0x48, 0x8d, 0x64, 0x24, 8, // lea rsp, [rsp+8]
		stubCall:      0xe8,
		trampolineOff: 0x48, 0x8d, 0x64, 0x24, 0xf8, // lea rsp, [rsp-8]
		stubPush:     0x68, // push imm32, always five bytes
		stubPush + 5: 0xe9,
		jumped:       0xcc,
	}
	le := binary.LittleEndian
	for n := 1; n <= r.pool.Count; n++ {
		at := r.b.Here()
		le.PutUint32(stub[called-4:], uint32(body-(at+called)))
		le.PutUint32(stub[stubPush+1:], uint32(n))
		le.PutUint32(stub[jumped-4:], uint32(common-(at+jumped)))
		inst := r.pool.Addr + uint64(r.pool.offset(n))
		le.PutUint32(stub[stubSize-stubAddr:], uint32(inst))
		le.PutUint16(stub[stubSize-2:], uint16(inst>>32))
		r.b.Raw(stub[:]...)
	}
}
