package bench

import (
	"debug/dwarf"
	"encoding/binary"
)

// Codes of the subject's abbreviations, forms and attributes' values
// (DWARF 4, section 7).
const (
	abbrevUnit = iota + 1
	abbrevLong
	abbrevFunc
	abbrevParam

	formAddr    = 0x01
	formData8   = 0x07
	formString  = 0x08
	formData1   = 0x0b
	formRef4    = 0x13
	formExprloc = 0x18
	formPresent = 0x19

	languageC99    = 0x0c
	encodingSigned = 0x05
	opReg0         = 0x50
	registerSI     = 4 // of the x86-64 psABI, figure 3.36
	registerDI     = 5
)

// debugInfo describes the functions, each as long f(long a, long b), so that
// kprobe finds parameters as in a compiler's program.
func (s *subject) debugInfo() (info, abbrev []byte) {
	attrs := func(code byte, tag dwarf.Tag, children byte, list ...uint16) {
		abbrev = append(abbrev, code, byte(tag), children)
		for _, a := range append(list, 0) {
			abbrev = append(abbrev, byte(a>>8), byte(a))
		}
	}
	attr := func(a dwarf.Attr, form byte) uint16 { return uint16(a)<<8 | uint16(form) }
	attrs(abbrevUnit, dwarf.TagCompileUnit, 1, attr(dwarf.AttrName, formString), attr(dwarf.AttrLanguage, formData1),
		attr(dwarf.AttrLowpc, formAddr), attr(dwarf.AttrHighpc, formData8))
	attrs(abbrevLong, dwarf.TagBaseType, 0, attr(dwarf.AttrName, formString), attr(dwarf.AttrByteSize, formData1), attr(dwarf.AttrEncoding, formData1))
	attrs(abbrevFunc, dwarf.TagSubprogram, 1, attr(dwarf.AttrName, formString), attr(dwarf.AttrExternal, formPresent), attr(dwarf.AttrPrototyped, formPresent),
		attr(dwarf.AttrType, formRef4), attr(dwarf.AttrLowpc, formAddr), attr(dwarf.AttrHighpc, formData8))
	attrs(abbrevParam, dwarf.TagFormalParameter, 0, attr(dwarf.AttrName, formString), attr(dwarf.AttrType, formRef4), attr(dwarf.AttrLocation, formExprloc))
	abbrev = append(abbrev, 0)

	text := func(v string) { info = append(append(info, v...), 0) }
	word := func(v uint64) { info = binary.LittleEndian.AppendUint64(info, v) }
	info = append(info, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8) // length, version, abbreviations, size of addresses
	info = append(info, abbrevUnit)
	text("subject.c")
	info = append(info, languageC99)
	word(textAt)
	word(uint64(len(s.code)))
	long := uint32(len(info))
	info = append(info, abbrevLong)
	text("long")
	info = append(info, 8, encodingSigned)
	for _, f := range s.funcs {
		if f.bare {
			continue
		}
		info = append(info, abbrevFunc)
		text(f.name)
		info = binary.LittleEndian.AppendUint32(info, long)
		word(f.at)
		word(f.size)
		for _, p := range []struct {
			name string
			reg  byte
		}{{"a", registerDI}, {"b", registerSI}} {
			info = append(info, abbrevParam)
			text(p.name)
			info = binary.LittleEndian.AppendUint32(info, long)
			info = append(info, 1, opReg0+p.reg)
		}
		info = append(info, 0)
	}
	info = append(info, 0)
	binary.LittleEndian.PutUint32(info, uint32(len(info)-4))
	return info, abbrev
}
