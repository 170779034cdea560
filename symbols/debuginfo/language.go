package debuginfo

// Language is a source language (DWARF 5, table 7.17).
type Language int64

// IsC reports whether the language is C, of any version.
func (l Language) IsC() bool {
	return l == 0x01 || l == 0x02 || l == 0x0c || l == 0x1d || l == 0x2c || l == 0x3e
}

// IsCXX reports whether the language is C++, of any version.
func (l Language) IsCXX() bool {
	return l == 0x04 || l == 0x1a || l == 0x21 || l == 0x2b || l == 0x3a
}

// IsRust reports whether the language is Rust.
func (l Language) IsRust() bool { return l == 0x1c }

// IsGo reports whether the language is Go.
func (l Language) IsGo() bool { return l == 0x16 }
