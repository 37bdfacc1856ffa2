package term

import (
	"io"
	"strings"
)

// Column is one column of a Table.
type Column struct {
	Title string // "" in all columns for a table without a head
	Right bool   // aligned to the right, as numbers are
	Flex  bool   // may be cut, down to minFlex columns, when the table is too wide
}

const (
	maxWidth = 80
	minFlex  = 8
	gap      = "  "
)

// Table aligns rows in columns and fits them into 80 columns of the terminal
// by cutting the widest of the flexible ones; what must not be cut, such as an
// id that is going to be pasted, may still make it wider. Cells are cleaned,
// and no line ends in a blank.
type Table struct {
	Columns []Column
	rows    [][]string
}

// Row adds a row with a cell for each column; missing cells are empty.
func (t *Table) Row(cells ...string) {
	row := make([]string, len(t.Columns))
	for i, cell := range cells[:min(len(cells), len(row))] {
		row[i] = Clean(cell)
	}
	t.rows = append(t.rows, row)
}

// Write prints the table, and nothing when it has no rows.
func (t *Table) Write(w io.Writer) error {
	if len(t.rows) == 0 {
		return nil
	}
	rows := t.rows
	if head := t.head(); strings.Join(head, "") != "" {
		rows = append([][]string{head}, rows...)
	}
	widths := t.widths(rows)
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			cell = Cut(cell, widths[i])
			blanks := strings.Repeat(" ", widths[i]-Width(cell))
			if t.Columns[i].Right {
				cell = blanks + cell
			} else {
				cell += blanks
			}
			line.WriteString(cell + gap)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *Table) head() []string {
	var titles []string
	for _, c := range t.Columns {
		titles = append(titles, c.Title)
	}
	return titles
}

// widths gives each column the width of its widest cell, and then takes from
// the widest flexible one until the line fits.
func (t *Table) widths(rows [][]string) []int {
	widths := make([]int, len(t.Columns))
	total := len(gap) * (len(widths) - 1)
	for i := range widths {
		for _, row := range rows {
			widths[i] = max(widths[i], Width(row[i]))
		}
		total += widths[i]
	}
	for ; total > maxWidth; total-- {
		widest := -1
		for i, c := range t.Columns {
			if c.Flex && widths[i] > minFlex && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}
