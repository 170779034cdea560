package fetch

import "encoding/binary"

// How a goroutine's labels lie in memory (runtime/pprof, label.go): what runtime.g has is
// the address of a slice of pairs of texts from Go 1.24 on, of a map of texts before.
const (
	LabelList uint64 = iota
	LabelMap
)

// MaxLabelName is the longest name of a label that can be asked for, in bytes.
const MaxLabelName = 64

// MaxLabels is how many of a list's labels are looked at, and of how many buckets a map
// may be.
const MaxLabels = 64

// Bytes of a text's header and of a list's pair, and where a pair has its value.
const (
	goText     = 16
	LabelPair  = 2 * goText
	LabelValue = goText
)

// Of maps of texts before Go 1.24 (runtime/map.go): of the map itself, and of buckets,
// which have eight marks, eight keys, eight values, and the next bucket's address.
const (
	goMapB       = 9
	goMapBuckets = 16
	goMapOld     = 24
	bucketKeys   = 8
	bucketValues = bucketKeys + 8*goText
	bucketOver   = bucketValues + 8*goText
	bucketSize   = bucketOver + 8
)

// LabelsContent is all labels of a goroutine, from the address of what its runtime.g has.
func LabelsContent(form uint64) *Content {
	at := func(off uint64) Trail { return Trail{{Op: StepLoad, Imm: off, Size: 8}} }
	text := func() *Content {
		return &Content{Kind: ContentText, Name: "string", Size: goText, Ptr: at(0), Count: at(8)}
	}
	all := &Content{
		Kind: ContentSequence, Name: "labels", Size: 24, Ptr: at(0), Count: at(8), Stride: LabelPair, Style: StyleMap,
		Elem: &Content{Kind: ContentStruct, Size: LabelPair, Style: StyleTuple, Members: []ContentMember{{Elem: text()}, {Off: LabelValue, Elem: text()}}},
	}
	if form == LabelMap {
		in := func(off uint64, size uint8) Trail { return Trail{{Op: StepLoad, Imm: off, Size: size}} }
		all = &Content{Kind: ContentMap, Name: "labels", Size: 8, Count: at(0), Style: StyleMap, Map: &MapContent{
			Buckets: at(goMapBuckets), Old: at(goMapOld), B: in(goMapB, 1), Flags: in(goMapB-1, 1),
			Over: bucketOver, BucketSize: bucketSize,
			Key: bucketKeys, Val: bucketValues, Stride: goText, ValStride: goText, KeyElem: text(), ValElem: text(),
		}}
	}
	return &Content{Kind: ContentPointer, Name: "labels", Size: 8, Ptr: at(0), Elem: all}
}

// label finds the address of the text that a label has as its value; false is: there is
// no label of that name, or memory can't be read.
func (e *evaluator) label(s *Step, at uint64) (uint64, bool) {
	var head [32]byte
	if s.Imm == LabelList {
		if !e.read(head[:16], at) {
			return 0, false
		}
		first, n := binary.LittleEndian.Uint64(head[:]), binary.LittleEndian.Uint64(head[8:])
		return e.labelAmong(s.Text, first, min(n, MaxLabels), LabelPair, LabelValue)
	}
	if !e.read(head[:8], at) || !e.read(head[:], binary.LittleEndian.Uint64(head[:])) {
		return 0, false
	}
	b := head[goMapB]
	if b > 6 {
		return 0, false
	}
	for i, from := range [2]uint64{binary.LittleEndian.Uint64(head[goMapBuckets:]), binary.LittleEndian.Uint64(head[goMapOld:])} {
		for k := uint64(0); from != 0 && k < 1<<b>>i; k++ {
			if v, ok := e.labelInBucket(s.Text, from+k*bucketSize); ok {
				return v, true
			}
		}
	}
	return 0, false
}

// labelInBucket looks through a bucket and those that it leads to.
func (e *evaluator) labelInBucket(name string, bucket uint64) (uint64, bool) {
	for range 8 {
		if v, ok := e.labelAmong(name, bucket+bucketKeys, 8, goText, bucketValues-bucketKeys); ok {
			return v, true
		}
		var next [8]byte
		if !e.read(next[:], bucket+bucketOver) {
			break
		}
		if bucket = binary.LittleEndian.Uint64(next[:]); bucket == 0 {
			break
		}
	}
	return 0, false
}

// labelAmong looks through n names, stride bytes apart, whose values are value behind
// them.
func (e *evaluator) labelAmong(name string, at, n, stride, value uint64) (uint64, bool) {
	var head [goText]byte
	var text [MaxLabelName]byte
	for ; n > 0; n, at = n-1, at+stride {
		if !e.read(head[:], at) {
			return 0, false
		}
		if binary.LittleEndian.Uint64(head[8:]) != uint64(len(name)) {
			continue
		}
		b := text[:len(name)]
		if !e.read(b, binary.LittleEndian.Uint64(head[:])) {
			return 0, false
		}
		if string(b) == name {
			return at + value, true
		}
	}
	return 0, false
}
