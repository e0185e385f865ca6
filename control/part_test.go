package control

import (
	"testing"

	"github.com/weirstream/weir/codes"
)

func TestPartOf(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]int32{"a/b/0": 0, "a/17": 17, "a/b": -1, "a/": -1, "a/+1": -1, "a/007": -1, "a/4294967296": -1, "7": -1, "a/-1": -1} {
		run, n, ok := PartOf(id)
		if ok != (want >= 0) || ok && (n != want || PartID(run, n) != id) {
			t.Errorf("%s: %q, %d, %v", id, run, n, ok)
		}
	}
}

func TestCheckScope(t *testing.T) {
	t.Parallel()
	for id, c := range map[string]struct {
		there []string
		bad   bool
	}{
		"a":     {[]string{"b", "a/x", "aa/0", "b/0", "a/b/0"}, false},
		"a/0":   {[]string{"a/1", "aa", "a/b"}, false},
		"b":     {[]string{"a", "b/3"}, true},
		"b/0":   {[]string{"b/1", "b"}, true},
		"b/c/0": {[]string{"b/0", "b"}, false},
	} {
		if err := CheckScope(id, c.there); codes.Has(err, codes.RunMismatch) != c.bad || (err != nil) != c.bad {
			t.Errorf("%s beside %q: %v", id, c.there, err)
		}
	}
}
