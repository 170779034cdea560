package debuginfo

import "kprobe/symbols/dwread"

// form says how an attribute's value is written (DWARF 5, table 7.6).
type form uint16

const (
	formAddr          form = 0x01
	formBlock2        form = 0x03
	formBlock4        form = 0x04
	formData2         form = 0x05
	formData4         form = 0x06
	formData8         form = 0x07
	formString        form = 0x08
	formBlock         form = 0x09
	formBlock1        form = 0x0a
	formData1         form = 0x0b
	formFlag          form = 0x0c
	formSdata         form = 0x0d
	formStrp          form = 0x0e
	formUdata         form = 0x0f
	formRefAddr       form = 0x10
	formRef1          form = 0x11
	formRef2          form = 0x12
	formRef4          form = 0x13
	formRef8          form = 0x14
	formRefUdata      form = 0x15
	formIndirect      form = 0x16
	formSecOffset     form = 0x17
	formExprloc       form = 0x18
	formFlagPresent   form = 0x19
	formStrx          form = 0x1a
	formAddrx         form = 0x1b
	formRefSup4       form = 0x1c
	formStrpSup       form = 0x1d
	formData16        form = 0x1e
	formLineStrp      form = 0x1f
	formRefSig8       form = 0x20
	formImplicitConst form = 0x21
	formLoclistx      form = 0x22
	formRnglistx      form = 0x23
	formRefSup8       form = 0x24
	formStrx1         form = 0x25
	formStrx2         form = 0x26
	formStrx3         form = 0x27
	formStrx4         form = 0x28
	formAddrx1        form = 0x29
	formAddrx2        form = 0x2a
	formAddrx3        form = 0x2b
	formAddrx4        form = 0x2c
	formGNUAddrIndex  form = 0x1f01
	formGNUStrIndex   form = 0x1f02
	formGNURefAlt     form = 0x1f20
	formGNUStrpAlt    form = 0x1f21
)

// format is what reading forms depends on.
type format struct {
	dwarf64  bool
	addrSize int
	version  int
}

// value reads a value: a number, or the bytes of a block or of a string that is in place.
func value(r *dwread.Reader, f form, s format, implicit int64) (u uint64, b []byte) {
	switch f {
	case formAddr:
		return r.Uint(s.addrSize), nil
	case formData1, formRef1, formFlag, formStrx1, formAddrx1:
		return uint64(r.U8()), nil
	case formData2, formRef2, formStrx2, formAddrx2:
		return r.U16(), nil
	case formStrx3, formAddrx3:
		return r.U24(), nil
	case formData4, formRef4, formStrx4, formAddrx4, formRefSup4:
		return r.U32(), nil
	case formData8, formRef8, formRefSig8, formRefSup8:
		return r.U64(), nil
	case formData16:
		return 0, r.Take(16)
	case formSdata:
		return uint64(r.Sleb()), nil
	case formUdata, formRefUdata, formStrx, formAddrx, formLoclistx, formRnglistx, formGNUAddrIndex, formGNUStrIndex:
		return r.Uleb(), nil
	case formString:
		return 0, r.CString()
	case formBlock1:
		return 0, r.Take(uint64(r.U8()))
	case formBlock2:
		return 0, r.Take(r.U16())
	case formBlock4:
		return 0, r.Take(r.U32())
	case formBlock, formExprloc:
		return 0, r.Take(r.Uleb())
	case formStrp, formLineStrp, formStrpSup, formSecOffset, formGNURefAlt, formGNUStrpAlt:
		return r.Offset(s.dwarf64), nil
	case formRefAddr:
		if s.version == 2 {
			return r.Uint(s.addrSize), nil
		}
		return r.Offset(s.dwarf64), nil
	case formFlagPresent:
		return 1, nil
	case formImplicitConst:
		return uint64(implicit), nil
	}
	r.Bad = true
	return 0, nil
}
