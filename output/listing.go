package output

import (
	"encoding/hex"
	"io"
	"strconv"
	"strings"

	"kprobe/internal/quote"
	"kprobe/probe/results"
)

// ListingText prints the instructions of a function: a line with its name,
// address and size, then a table. The instruction that was asked for is marked
// with '>'. On a terminal of a width, 0: there is none, no instruction takes more than
// half of it: one may name a function of C++ with a thousand characters.
func ListingText(w io.Writer, l *results.Listing, width int) error {
	head := quote.AppendPlain(nil, l.Name)
	if l.Module != nil && l.Module.Name != "" {
		head = append(quote.AppendPlain(append(head, " ("...), l.Module.Name), ')')
	}
	if len(l.Lines) > 0 {
		head = appendHex(append(head, " at "...), uint64(l.Lines[0].Addr))
	}
	head = appendHex(append(head, ", "...), l.Func.Size())
	head = append(head, " bytes:\n"...)
	t := listingTable(l)
	if width > 0 {
		for _, row := range t.Rows {
			row[3] = ellipsis(row[3], max(width/2, minInstruction))
		}
	}
	_, err := w.Write(t.appendColumns(head))
	return err
}

// minInstruction is how many characters of an instruction are shown on any terminal.
const minInstruction = 32

// listingTable lays a listing out; the column of source lines is there only if
// a line has one.
func listingTable(l *results.Listing) *Table {
	t := &Table{Columns: []Column{{"", Left}, {"OFFSET", Right}, {"BYTES", Left}, {"INSTRUCTION", Left}}}
	source := false
	for i := range l.Lines {
		source = source || l.Lines[i].Source != ""
	}
	if source {
		t.Columns = append(t.Columns, Column{"LINE", Left})
	}
	t.Columns = append(t.Columns, Column{"PROBE", Left}, Column{"WHY", Left})
	for i := range l.Lines {
		in := &l.Lines[i]
		mark := " "
		if in.Offset == l.Asked {
			mark = ">"
		}
		row := []string{mark, "+0x" + strconv.FormatUint(in.Offset, 16), hex.EncodeToString(in.Bytes), in.Text}
		if source {
			row = append(row, in.Source)
		}
		t.Rows = append(t.Rows, append(row, in.Probe.String(), firstReason(in)))
	}
	return t
}

// firstReason is why an instruction can't be probed better: what stood in the
// way of the best. The other reasons are for JSON.
func firstReason(in *results.Line) string {
	if in.Probe == results.KindJump {
		return ""
	}
	why, _, _ := strings.Cut(in.Why, "; ")
	return why
}

// AppendListingJSON appends one object for each instruction of a function.
func AppendListingJSON(dst []byte, l *results.Listing) []byte {
	for i := range l.Lines {
		in := &l.Lines[i]
		dst = appendHex(append(dst, `{"addr":"`...), uint64(in.Addr))
		dst = appendPadded(append(dst, `","off":`...), in.Offset, 1, ' ')
		dst = appendPadded(append(dst, `,"size":`...), uint64(len(in.Bytes)), 1, ' ')
		dst = quote.AppendHex(append(dst, `,"bytes":`...), in.Bytes)
		dst = quote.AppendJSON(append(dst, `,"asm":`...), in.Text)
		if in.Source != "" {
			dst = quote.AppendJSON(append(dst, `,"line":`...), in.Source)
		}
		dst = quote.AppendJSON(append(dst, `,"probe":`...), in.Probe.String())
		if in.Tactic.Jump() {
			dst = quote.AppendJSON(append(dst, `,"tactic":`...), in.Tactic.String())
		}
		if in.Why != "" {
			dst = quote.AppendJSON(append(dst, `,"why":`...), in.Why)
		}
		dst = quote.AppendJSON(append(dst, `,"func":`...), l.Name)
		dst = append(dst, '}', '\n')
	}
	return dst
}
