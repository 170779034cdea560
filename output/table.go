package output

import (
	"fmt"
	"io"

	"kprobe/internal/quote"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// Align says on which side of its column a text is.
type Align uint8

// The sides of a column.
const (
	Left Align = iota
	Right
)

// Column is a column of a Table.
type Column struct {
	Name  string
	Align Align
}

// Table is a table without borders. Columns are separated by two blanks. No other file uses the
// library that draws it. Tables cost about 12 µs a row: they are for ends of runs and screens,
// never for hits.
type Table struct {
	Columns []Column
	Rows    [][]string
}

// plain gives the rows without control characters.
func (t *Table) plain() [][]string {
	rows := make([][]string, len(t.Rows))
	for i, row := range t.Rows {
		rows[i] = make([]string, len(row))
		for j, cell := range row {
			rows[i][j] = quote.Plain(cell)
		}
	}
	return rows
}

// Fit shortens the cells of one column, but not below a dozen characters, so that the table is
// no wider than a terminal. A width of 0 means that there is no terminal, and nothing is
// shortened.
func (t *Table) Fit(column, width int) {
	if width <= 0 {
		return
	}
	widest := t.widths(t.Rows)
	room := width
	for i, wide := range widest {
		room -= gap // behind the last column is one, too
		if i != column {
			room -= wide
		}
	}
	if room = max(room, minName); widest[column] <= room {
		return
	}
	for _, row := range t.Rows {
		row[column] = middle(row[column], room)
	}
}

// Render draws the table on w. Cells are printed as they are: nothing is
// wrapped, cut or put in upper case.
func (t *Table) Render(w io.Writer) error {
	aligns := make([]tw.Align, len(t.Columns))
	header := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		header[i], aligns[i] = c.Name, tw.AlignLeft
		if c.Align == Right {
			aligns[i] = tw.AlignRight
		}
	}
	cell := tw.CellConfig{
		Formatting: tw.CellFormatting{AutoWrap: tw.WrapNone, AutoFormat: tw.Off},
		Alignment:  tw.CellAlignment{PerColumn: aligns},
		Padding:    tw.CellPadding{Global: tw.Padding{Right: "  ", Overwrite: true}},
	}
	draw := tablewriter.NewTable(w,
		tablewriter.WithConfig(tablewriter.Config{
			Header:   cell,
			Row:      cell,
			Behavior: tw.Behavior{TrimSpace: tw.Off},
		}),
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders: tw.BorderNone,
			Settings: tw.Settings{
				Separators: tw.SeparatorsNone,
				Lines:      tw.LinesNone,
			},
		})))
	draw.Header(header)
	if err := draw.Bulk(t.plain()); err != nil {
		return fmt.Errorf("lay out a table: %w", err)
	}
	if err := draw.Render(); err != nil {
		return fmt.Errorf("draw a table: %w", err)
	}
	return nil
}
