package flow

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirstream/weir/codes"
)

// maxErrors bounds how many errors of one file are kept. A file with more of them is not a flow that someone meant.
const maxErrors = 1000

// Error is one thing that is wrong in a flow file.
type Error struct {
	// Line and Column are where it stands, from 1. Columns count characters (Unicode code points), not bytes.
	Line, Column int
	// Path names the place in the document, as in operators[0].period. It is "" for the document as a whole.
	Path string
	// Message says what is wrong, Cure what would be right.
	Message, Cure string
}

// Errors are all errors of one flow file, in the order of the file. It carries the code FLOW_INVALID.
type Errors struct {
	// File is the name that was given to Parse.
	File string
	List []Error
	// Omitted is the number of further errors that were not kept.
	Omitted int
}

// Error writes one line for each error: file:line:column: path: message (cure).
func (e *Errors) Error() string {
	var b strings.Builder
	for i, one := range e.List {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s:%d:%d: ", e.File, one.Line, one.Column)
		if one.Path != "" {
			b.WriteString(one.Path + ": ")
		}
		fmt.Fprintf(&b, "%s (%s)", one.Message, one.Cure)
	}
	if e.Omitted > 0 {
		fmt.Fprintf(&b, "\n%s: %d more errors are not shown", e.File, e.Omitted)
	}
	return b.String()
}

// Unwrap gives the error its code.
func (e *Errors) Unwrap() error {
	return codes.New(codes.FlowInvalid, "%s has %d errors", e.File, len(e.List)+e.Omitted)
}

// pos is a place in the file: line and column, from 1.
type pos struct{ line, col int }

// report collects errors.
type report struct {
	list    []Error
	omitted int
}

func (r *report) add(at pos, path, message, cure string) {
	if len(r.list) == maxErrors {
		r.omitted++
		return
	}
	r.list = append(r.list, Error{Line: at.line, Column: at.col, Path: path, Message: message, Cure: cure})
}

// count is the number of errors so far.
func (r *report) count() int { return len(r.list) + r.omitted }

// err is nil when nothing was reported.
func (r *report) err(file string) error {
	if len(r.list) == 0 {
		return nil
	}
	slices.SortStableFunc(r.list, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Path, b.Path))
	})
	return &Errors{File: file, List: r.list, Omitted: r.omitted}
}

// quote shows a text of the file in a message: in quotes, escaped so that it cannot steer a terminal, and cut when it is long.
func quote(s string) string { return `"` + printable(s) + `"` }

// printable is quote without the quotes.
func printable(s string) string {
	const most = 40
	end := ""
	if utf8.RuneCountInString(s) > most {
		s, end = string([]rune(s)[:most]), "…"
	}
	q := strconv.Quote(s)
	return q[1:len(q)-1] + end
}

// suggest is the cure for a word that is not known: the one that is nearly it, or all of them.
func suggest(word string, known []string) string {
	if len(known) == 0 {
		return "there is none to choose from"
	}
	best, least := "", 3
	for _, k := range known {
		limit := min(least, 1+len(k)/3)
		if d := distance(word, k, limit); d < limit {
			best, least = k, d
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	return "known: " + strings.Join(known, ", ")
}

// suggestAll is suggest, and all of them in any case.
func suggestAll(word string, known []string) string {
	cure, all := suggest(word, known), "known: "+strings.Join(known, ", ")
	if strings.HasPrefix(cure, "did you mean") {
		return cure + " " + all
	}
	return cure
}

// distance is the number of letters to insert, delete, replace or swap with their neighbour to turn a into b; limit when it is
// at least that.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return min(row[len(b)], limit)
}
