package flow

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

const (
	// maxFieldName is the length of the name of a record's field, in bytes.
	maxFieldName = 256
	// maxSelectValue is the length of a value to select by, in bytes.
	maxSelectValue = 1024
	// flowNamePattern and wordPattern are the spellings of a flow's name and of the name of an operator or output.
	flowNamePattern = `^[a-z0-9][a-z0-9._-]{0,62}$`
	wordPattern     = `^[A-Za-z][A-Za-z0-9_]{0,62}$`
)

var (
	flowName = regexp.MustCompile(flowNamePattern)
	word     = regexp.MustCompile(wordPattern)
)

// wrong reports a value of the wrong shape. A value that was reported already stays silent.
func (c *compiler) wrong(n *node, path, want, cure string) {
	if n.shape == broken {
		return
	}
	is := n.shape.String()
	switch n.shape {
	case number, integer:
		is = "the number " + printable(n.value)
	case boolean:
		is = printable(n.value)
	}
	c.report.add(n.at, path, fmt.Sprintf("must be %s, is %s", want, is), cure)
}

// text reads a text.
func (c *compiler) text(n *node, path, want, cure string) (string, bool) {
	if n.shape != text {
		c.wrong(n, path, want, cure)
		return "", false
	}
	return n.value, true
}

// anyText reads a text that may be any. A number in its place may be meant as a text.
func (c *compiler) anyText(n *node, path, want, cure string) (string, bool) {
	switch n.shape {
	case integer, number, boolean:
		cure = quotesCure(n)
	}
	return c.text(n, path, want, cure)
}

// quotesCure is for a number, or a word that stands for a value, where its spelling may be meant.
func quotesCure(n *node) string {
	return fmt.Sprintf(`if the text %[1]s is meant, put it in quotes: "%[1]s"`, printable(n.value))
}

// field reads the name of a field of the records.
func (c *compiler) field(n *node, path string) string {
	s, ok := c.anyText(n, path, "the name of a field of the records", fieldCure)
	if !ok {
		return ""
	}
	return c.fieldName(s, n.at, path)
}

func (c *compiler) fieldName(s string, at pos, path string) string {
	switch {
	case s == "":
		c.report.add(at, path, "is an empty name", fieldCure)
	case len(s) > maxFieldName:
		c.report.add(at, path, fmt.Sprintf("is a name of %d bytes, more than %d", len(s), maxFieldName), fieldCure)
	case strings.ContainsFunc(s, unicode.IsControl):
		c.report.add(at, path, "is a name with a control character", fieldCure)
	default:
		return s
	}
	return ""
}

// name reads a name of the given spelling.
func (c *compiler) name(n *node, path string, pattern *regexp.Regexp, cure string) string {
	wrongCure := cure
	if n.shape != text && pattern.MatchString(n.value) {
		wrongCure = quotesCure(n)
	}
	s, ok := c.text(n, path, "a name", wrongCure)
	if !ok {
		return ""
	}
	if !pattern.MatchString(s) {
		c.report.add(n.at, path, quote(s)+" is not a name", cure)
		return ""
	}
	return s
}

const (
	fieldCure    = "write the name alone, as in event_time"
	flowNameCure = "lower-case letters, digits, dots, dashes and underscores, from a letter or digit, at most 63: instrument-1-ema"
	wordCure     = "letters, digits and underscores, from a letter, at most 63: ema_3"
)

// duration reads a duration within bounds, both inclusive.
func (c *compiler) duration(n *node, path string, least, most time.Duration) time.Duration {
	const cure = "write a number with its unit, of d, h, m, s, ms, us, ns: 90s or 1h30m"
	if n.shape == integer || n.shape == number {
		c.wrong(n, path, "a duration", "add the unit, of d, h, m, s, ms, us, ns: "+strings.TrimPrefix(printable(n.value), "-")+"s")
		return least
	}
	s, ok := c.text(n, path, "a duration", cure)
	if !ok {
		return least
	}
	d, err := ParseDuration(s)
	switch {
	case err != nil && strings.HasPrefix(s, "-"):
		c.report.add(n.at, path, fmt.Sprintf("must be at least %s, is %s", FormatDuration(least), quote(s)), "remove the sign")
	case err != nil:
		c.report.add(n.at, path, fmt.Sprintf("%s %s", quote(s), err), cure)
	case d < least:
		c.report.add(n.at, path, fmt.Sprintf("must be at least %s, is %s", FormatDuration(least), FormatDuration(d)), "write "+FormatDuration(least)+" or more")
	case d > most:
		c.report.add(n.at, path, fmt.Sprintf("must be at most %s, is %s", FormatDuration(most), FormatDuration(d)), "write "+FormatDuration(most)+" or less")
	default:
		return d
	}
	return least
}

// integer reads an integer within bounds, both inclusive.
func (c *compiler) integer(n *node, path string, least, most int64) int64 {
	want := fmt.Sprintf("an integer from %d to %d", least, most)
	cure := "plain decimal digits, without quotes, sign, point, underscores or leading zeros"
	if n.shape != integer {
		c.wrong(n, path, want, cure)
		return least
	}
	v, err := strconv.ParseInt(n.value, 10, 64)
	if err != nil || v < least || v > most {
		c.report.add(n.at, path, fmt.Sprintf("must be %s, is %s", want, printable(n.value)), "write a number within the bounds")
		return least
	}
	return v
}

// oneOf reads one of a few words.
func (c *compiler) oneOf(n *node, path string, words []string) (string, bool) {
	s, ok := c.text(n, path, "one of "+strings.Join(words, ", "), "write "+strings.Join(words, " or "))
	if !ok {
		return "", false
	}
	if !slices.Contains(words, s) {
		c.report.add(n.at, path, fmt.Sprintf("must be one of %s, is %s", strings.Join(words, ", "), quote(s)), suggest(s, words))
		return "", false
	}
	return s, true
}

// mapping checks that n is a mapping with no other than the known fields.
func (c *compiler) mapping(n *node, path, example string, known ...string) bool {
	if n.shape != mapping {
		c.wrong(n, path, "a mapping", "as in "+example)
		return false
	}
	for _, e := range n.entries {
		if !slices.Contains(known, e.key) {
			c.report.add(e.at, join(path, e.key), "is not a field of the flow language here", suggest(e.key, known))
		}
	}
	return true
}

// need finds a required field and reports it when it is missing.
func (c *compiler) need(n *node, path, key, example string) *node {
	v := n.get(key)
	if v == nil {
		c.report.add(n.at, join(path, key), "is missing", "add it, as in "+example)
	}
	return v
}
