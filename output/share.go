package output

import "strconv"

// percent gives the share that part is of all for a person: 38.4 %, and of what is
// there never none, nor all where something is missing.
func percent(part, all uint64) string {
	share, _ := hundredths(part, all)
	switch tenths := (share + 5) / 10; {
	case part > 0 && tenths == 0:
		return "below 0.1 %"
	case part < all && tenths >= 1000:
		return "over 99.9 %"
	default:
		dst := appendPadded(nil, tenths/10, 0, ' ')
		return string(appendPadded(append(dst, '.'), tenths%10, 1, '0')) + " %"
	}
}

// appendPercent appends the share as a number, in hundredths of a per cent.
func appendPercent(dst []byte, part, all uint64) []byte {
	share, _ := hundredths(part, all)
	return strconv.AppendFloat(dst, float64(share)/100, 'f', -1, 64)
}
