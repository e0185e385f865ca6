package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// usageCure says what helps with a mistake on the command line: the nearest word that there is, and where to look. reached is the command that the
// arguments led to, or nil.
func usageCure(reached *cobra.Command, message string) string {
	if reached == nil || !reached.HasParent() {
		return nearest(message, "unknown command ", commandsOf(reached), "weir ") + nearest(message, "unknown flag: ", flagsOf(reached), "") +
			"`weir --help` lists the commands, `weir COMMAND --help` shows an example."
	}
	path := reached.CommandPath()
	shows := fmt.Sprintf("See `%s --help`.", path)
	if reached.HasAvailableSubCommands() {
		shows = fmt.Sprintf("`%s --help` lists its commands.", path)
	}
	return nearest(message, "unknown command ", commandsOf(reached), path+" ") + nearest(message, "unknown flag: ", flagsOf(reached), "") + shows
}

// misspelled is the word that stands where a command of a group is named, and is none; or "".
func misspelled(root *cobra.Command, args []string) string {
	cmd, rest, err := root.Find(args)
	if err != nil || !cmd.HasAvailableSubCommands() {
		return ""
	}
	for i := 0; i < len(rest); i++ {
		name, _, whole := strings.Cut(rest[i], "=")
		switch {
		case !strings.HasPrefix(name, "-"):
			return rest[i]
		case !whole && name != "--json" && name != "--verbose" && name != "-v":
			i++ // a flag of the command that was meant, with its value
		}
	}
	return ""
}

// plainly is the error of a flag whose value cannot be read, without the names of functions.
func plainly(err error) error {
	var number *strconv.NumError
	head, _, time := strings.Cut(err.Error(), ": time: ")
	if errors.As(err, &number) {
		head = strings.TrimSuffix(err.Error(), ": "+number.Error())
	}
	switch {
	case time:
		return errors.New(head + ": it is no duration, such as 500ms, 30s or 1h30m")
	case number == nil:
		return err
	case number.Func == "ParseBool":
		return errors.New(head + ": it is neither true nor false")
	case errors.Is(err, strconv.ErrRange):
		return errors.New(head + ": it is beyond the numbers that can be given")
	case number.Func == "ParseFloat":
		return errors.New(head + ": it is not a number")
	}
	return errors.New(head + ": it is not a whole number")
}

// contains says whether a message says what its cure does.
func contains(message, cure string) bool {
	plain := func(s string) string { return strings.ToLower(strings.TrimSuffix(s, ".")) }
	return strings.Contains(plain(message), plain(cure))
}

// nearest is the question whether another word was meant, or "". The word is what follows start in the message, quoted or not.
func nearest(message, start string, words []string, before string) string {
	rest, found := strings.CutPrefix(message, start)
	if !found {
		return ""
	}
	word, _, _ := strings.Cut(rest, " ")
	if text, err := strconv.QuotedPrefix(rest); err == nil {
		word, _ = strconv.Unquote(text) // it is quoted
	}
	best, at := "", max(2, utf8.RuneCountInString(word)/3)+1
	for _, w := range words {
		d := distance(word, w)
		if strings.HasPrefix(w, word) && len(word) > len("--")+1 {
			d = min(d, 1)
		}
		if d < at && d < utf8.RuneCountInString(word) {
			best, at = w, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("Did you mean `%s%s`? ", before, best)
}

func commandsOf(cmd *cobra.Command) (names []string) {
	if cmd == nil {
		return nil
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// flagsOf are the flags of a command and those that all have, as they stand in its help.
func flagsOf(cmd *cobra.Command) (names []string) {
	if cmd == nil {
		return nil
	}
	for _, line := range strings.Split(cmd.Flags().FlagUsages()+cmd.InheritedFlags().FlagUsages(), "\n") {
		if _, rest, found := strings.Cut(line, "--"); found {
			name, _, _ := strings.Cut(rest, " ")
			names = append(names, "--"+name)
		}
	}
	return names
}

// distance is how many letters must be put in, taken out, replaced or swapped with their neighbour to make a into b.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	var before, last []int
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(x); i++ {
		before, last, row = last, row, make([]int, len(y)+1)
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(y)]
}

// count writes a number of things: "1 run", "2 runs".
func count[N int | int64 | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
