package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weirstream/weir/codes"
)

// maxErrors bounds how many errors of one schedule are kept. A file with more of them is not a schedule that someone meant.
const maxErrors = 1000

// ScheduleError is one thing that is wrong in a fault schedule.
type ScheduleError struct {
	// Line and Column are where it stands in the file, from 1; columns count bytes. Both are 0 when the schedule comes from no file.
	Line, Column int
	// Entry is the index in the list of faults, or -1 for the document as a whole.
	Entry int
	// Message says what is wrong, and what would be right where that is not plain.
	Message string
}

// ScheduleErrors are all errors of one schedule, in the order of the file. It carries the code SCHEDULE_INVALID.
type ScheduleErrors struct {
	// File is the name that was given to ParseSchedule, "" when the schedule comes from no file.
	File string
	List []ScheduleError
	// Omitted is the number of further errors that were not kept.
	Omitted int
}

// Error writes one line for each error: file:line:column: faults[i]: message.
func (e *ScheduleErrors) Error() string {
	name := cmp.Or(e.File, "fault schedule")
	var b strings.Builder
	for i, one := range e.List {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(name)
		if one.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", one.Line, one.Column)
		}
		if one.Entry >= 0 {
			fmt.Fprintf(&b, ": faults[%d]", one.Entry)
		}
		b.WriteString(": " + one.Message)
	}
	if e.Omitted > 0 {
		fmt.Fprintf(&b, "\n%s: %d more errors are not shown", name, e.Omitted)
	}
	return b.String()
}

// Unwrap gives the error its code.
func (e *ScheduleErrors) Unwrap() error {
	return codes.New(codes.ScheduleInvalid, "%s has %d errors", cmp.Or(e.File, "the fault schedule"), len(e.List)+e.Omitted)
}

func (e *ScheduleErrors) add(line, column, entry int, message string) {
	if len(e.List) == maxErrors {
		e.Omitted++
		return
	}
	e.List = append(e.List, ScheduleError{Line: line, Column: column, Entry: entry, Message: message})
}

// err is nil when nothing was added.
func (e *ScheduleErrors) err() error {
	if len(e.List) == 0 {
		return nil
	}
	slices.SortStableFunc(e.List, func(a, b ScheduleError) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Entry, b.Entry), cmp.Compare(a.Message, b.Message))
	})
	return e
}
