package metrics

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

var name = regexp.MustCompile(`^weir_[a-z]+(_[a-z]+)*$`)

// The rules by which Prometheus names metrics: prefix, base units at the end, _total for counters and for nothing else, labels that are not in the name.
func TestNamesFollowTheRules(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	units := []string{"seconds", "bytes"}
	for _, m := range Table() {
		if seen[m.Name] {
			t.Errorf("%s stands twice", m.Name)
		}
		seen[m.Name] = true
		if !name.MatchString(m.Name) {
			t.Errorf("%s is not a name", m.Name)
		}
		base, total := strings.CutSuffix(m.Name, "_total")
		if total != (m.Type == Counter) {
			t.Errorf("%s is a %s", m.Name, m.Type)
		}
		if m.Unit != "" && (!slices.Contains(units, m.Unit) || !strings.HasSuffix(base, "_"+m.Unit)) {
			t.Errorf("%s does not end in its unit %s", m.Name, m.Unit)
		}
		for _, u := range []string{"seconds", "bytes", "milliseconds", "ms", "minutes", "mb"} {
			if strings.HasSuffix(base, "_"+u) && m.Unit != u {
				t.Errorf("%s ends in %s, and its unit is %q", m.Name, u, m.Unit)
			}
		}
		if m.Help == "" || !strings.HasSuffix(m.Help, ".") {
			t.Errorf("%s has the help %q", m.Name, m.Help)
		}
		for _, l := range m.AllLabels() {
			if !regexp.MustCompile(`^[a-z]+$`).MatchString(l) || l == "le" || l == "quantile" {
				t.Errorf("%s has the label %q", m.Name, l)
			}
		}
	}
}

func TestPageHasEveryMetric(t *testing.T) {
	t.Parallel()
	page := string(Page())
	for _, m := range Table() {
		if strings.Count(page, "| `"+m.Name+"` |") != 1 {
			t.Errorf("%s is not on the page", m.Name)
		}
	}
}
