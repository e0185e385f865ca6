package tidy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/tidy"
)

// TestModule holds the module to its own rules.
func TestModule(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err) // nothing would be checked
	}
	findings, err := tidy.Check(root, tidy.Table)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		t.Error(f)
	}
	long, err := tidy.Long(root, tidy.LongFunction)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range long {
		t.Logf("worth a second look: %s", f)
	}
}

// table is a small house.
var table = []tidy.Row{
	{Package: "core", Pure: true, Globals: []string{"registry"}, Why: "pure"},
	{Package: "edge", Imports: []string{"core"}, Vendors: []string{"example.com/vendor"}, TestVendors: []string{"example.com/testing"}, Why: "an edge"},
	{Package: "edge/inner", Imports: []string{"core"}, Why: "below an edge"},
	{Package: "driver", Imports: []string{"core", "edge/*"}, Why: "a driver"},
	{Package: "edgetest", Why: "a kit"},
	{Package: "cmd", Imports: []string{"*"}, Why: "wiring"},
}

// clean is a tree that breaks no rule.
const clean = `
-- core/core.go --
// Package core is pure.
package core

import (
	"math/rand/v2"
	"time"
)

// Limit is a constant.
const Limit = 10 * time.Second

var registry []string

func init() { registry = append(registry, "x") }

var table = map[string]int{"a": 1}

// Step is documented.
func Step(d time.Duration) int {
	table := map[string]int{}
	table["local"] = rand.New(rand.NewPCG(1, 2)).IntN(6)
	for i := range 3 {
		i++
	}
	return int(d/Limit) + table["local"]
}

// Error is an error.
type Error struct{}

func (Error) Error() string { return "" }

type hidden struct{}

func (hidden) Exported() {}

// The colours.
const (
	Red = iota
	Green
)

var (
	Blue = 1 // Blue is the third.
)
-- core/core_test.go --
package core

import (
	"os"
	"time"
)

func now() time.Time { os.Getpid(); go now(); return time.Now() }

func Undocumented() {}
-- edge/edge.go --
// Package edge is an edge.
package edge

import (
	"os"

	"example.com/vendor/part"
	"github.com/weirstream/weir/core"
)

var count int

func init() { count++; go os.Getpid(); part.Do(core.Limit) }
-- edge/edge_test.go --
package edge

import (
	"example.com/testing"
	"github.com/weirstream/weir/driver"
)

var _ = testing.X + driver.Y
-- driver/driver.go --
// Package driver drives.
package driver

import "github.com/weirstream/weir/edge/inner"

// Y is documented.
const Y = inner.Z
-- cmd/main.go --
// The command is wiring.
package main

import (
	_ "github.com/weirstream/weir"
	_ "github.com/weirstream/weir/driver"
)

func main() {}
-- cmd/testdata/x.go --
package not even Go
-- docs/index.md --
See https://example.com/a/work/b and ./work/x and /workshop/.
`

func TestCleanTree(t *testing.T) {
	t.Parallel()
	if got := check(t, clean, ""); len(got) > 0 {
		t.Errorf("findings on a clean tree:\n%s", strings.Join(got, "\n"))
	}
}

// TestEveryRule breaks each rule on purpose, in one file added to the clean tree.
func TestEveryRule(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tree string
		want []string
	}{
		"package without row": {"-- stray/x.go --\n// Package stray strays.\npackage stray\n",
			[]string{"stray/x.go:0: table: package stray has no row"}},
		"test package without row": {"-- stray/x_test.go --\npackage stray\n",
			[]string{"stray/x_test.go:0: table: package stray has no row"}},
		"arrow": {"-- core/x.go --\npackage core\n\nimport _ \"github.com/weirstream/weir/edge\"\n",
			[]string{"core/x.go:3: arrow: core must not import edge (pure)"}},
		"arrow to the root": {"-- driver/x.go --\npackage driver\n\nimport _ \"github.com/weirstream/weir\"\n",
			[]string{"driver/x.go:3: arrow: driver must not import ."}},
		"arrow beside a pattern": {"-- driver/x.go --\npackage driver\n\nimport _ \"github.com/weirstream/weir/edge\"\n",
			[]string{"driver/x.go:3: arrow: driver must not import edge"}},
		"vendor": {"-- driver/x.go --\npackage driver\n\nimport _ \"example.com/vendor\"\n",
			[]string{"driver/x.go:3: vendor: driver must not import example.com/vendor"}},
		"vendor with a like name": {"-- edge/x.go --\npackage edge\n\nimport _ \"example.com/vendors\"\n",
			[]string{"edge/x.go:3: vendor: edge must not import example.com/vendors"}},
		"vendor of a test": {"-- driver/x_test.go --\npackage driver\n\nimport _ \"example.com/testing\"\n",
			[]string{"driver/x_test.go:3: vendor: driver must not import example.com/testing"}},
		"vendor of tests outside a test": {"-- edge/x.go --\npackage edge\n\nimport _ \"example.com/testing\"\n",
			[]string{"edge/x.go:3: vendor: edge must not import example.com/testing"}},
		"cgo": {"-- edge/x.go --\npackage edge\n\nimport \"C\"\n",
			[]string{"edge/x.go:3: vendor: edge must not import C"}},
		"dot": {"-- edge/x.go --\npackage edge\n\nimport . \"time\"\n",
			[]string{"edge/x.go:3: dot: an import by dot"}},
		"goroutine": {"-- core/x.go --\npackage core\n\nfunc f() {\n\tgo f()\n}\n",
			[]string{"core/x.go:4: pure: core is pure and must not start a goroutine"}},
		"clock": {"-- core/x.go --\npackage core\n\nimport clock \"time\"\n\nvar f = clock.Now\n\nvar g = clock.NewTimer(1)\n",
			[]string{"core/x.go:5: pure: core is pure and must not call time.Now", "core/x.go:7: pure: core is pure and must not call time.NewTimer"}},
		"I/O": {"-- core/x.go --\npackage core\n\nimport (\n\t_ \"io/fs\"\n\t_ \"log/slog\"\n\t_ \"math/rand\"\n\t_ \"net/http\"\n\t_ \"os\"\n\t_ \"sync/atomic\"\n)\n",
			[]string{"core/x.go:4: pure: core is pure and must not import io/fs", "core/x.go:5: pure: core is pure and must not import log/slog",
				"core/x.go:6: pure: core is pure and must not import math/rand", "core/x.go:7: pure: core is pure and must not import net/http",
				"core/x.go:8: pure: core is pure and must not import os", "core/x.go:9: pure: core is pure and must not import sync/atomic"}},
		"global generator": {"-- core/x.go --\npackage core\n\nimport \"math/rand/v2\"\n\nvar n = rand.IntN(6)\n",
			[]string{"core/x.go:5: pure: core is pure and must not use the global generator of rand.IntN"}},
		"package variable": {"-- core/x.go --\npackage core\n\nvar n int\n\nfunc f(n2 int) {\n\tn = n2\n\ttable[\"a\"]++\n\tregistry = nil\n\tn := 1\n\tn++\n}\n",
			[]string{"core/x.go:6: pure: core is pure and must not change the package variable n",
				"core/x.go:7: pure: core is pure and must not change the package variable table"}},
		"sleep": {"-- edge/x_test.go --\npackage edge\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n",
			[]string{"edge/x_test.go:5: sleep: a test waits for a signal"}},
		"sleep beside a bubble": {"-- edge/x_test.go --\npackage edge\n\nimport (\n\t\"testing\"\n\t\"testing/synctest\"\n\t\"time\"\n)\n\nfunc f(t *testing.T) {\n\tsynctest.Test(t, func(*testing.T) { time.Sleep(1) })\n\ttime.Sleep(1)\n}\n",
			[]string{"edge/x_test.go:11: sleep: a test waits for a signal"}},
		"sleep in a kit": {"-- edgetest/x.go --\n// Package edgetest is a kit.\npackage edgetest\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n",
			[]string{"edgetest/x.go:6: sleep: a test waits for a signal"}},
		"long file": {"-- edge/x.go --\npackage edge\n" + strings.Repeat("\n", 600),
			[]string{"edge/x.go:0: size: 601 lines, more than 600"}},
		"long function": {"-- edge/x.go --\npackage edge\n\nfunc f() {\n" + strings.Repeat("\n", 79) + "}\n",
			[]string{"edge/x.go:3: size: f has 81 lines, more than 80"}},
		"no comment": {"-- edge/x.go --\npackage edge\n\nfunc F() {}\n\ntype T[P any] struct{}\n\nfunc (t *T[P]) M() {}\n\nconst (\n\tA = 1\n\tb = 2\n)\n\nvar V, w = 1, 2\n",
			[]string{"edge/x.go:3: doc: F has", "edge/x.go:5: doc: T has", "edge/x.go:7: doc: M has", "edge/x.go:10: doc: A has", "edge/x.go:14: doc: V has"}},
		"package without comment": {"-- edgetest/x.go --\npackage edgetest\n",
			[]string{"edgetest/x.go:1: doc: package edgetest has no doc comment"}},
		"vague folder": {"-- edge/utils/x.txt --\n\n-- edge/common/y.txt --\n",
			[]string{"edge/common:0: folder: name the folder", "edge/utils:0: folder: name the folder"}},
		"machine paths": {"-- docs/x.md --\nSee /wo" + "rk/main,\n`/fa" + "rm/x` and (/ro" + "ot/y)\nand ../sha" + "red/z.\n-- edge/testdata/x.json --\n{\"p\":\"/wo" + "rk/q\"}\n",
			[]string{"docs/x.md:1: path:", "docs/x.md:2: path:", "docs/x.md:3: path:", "edge/testdata/x.json:1: path:"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compare(t, check(t, clean, c.tree), c.want)
		})
	}
}

// compare wants one finding per expected beginning, in order.
func compare(t *testing.T, got, want []string) {
	t.Helper()
	ok := len(got) == len(want)
	for i := 0; ok && i < len(got); i++ {
		ok = strings.HasPrefix(got[i], want[i])
	}
	if !ok {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestGeneratedFilesAreFree(t *testing.T) {
	t.Parallel()
	tree := "-- edge/x.go --\n// Code generated by a tool. DO NOT EDIT.\n\npackage edge\n\nfunc F() {}\n" + strings.Repeat("\n", 700)
	if got := check(t, clean, tree); len(got) > 0 {
		t.Errorf("findings on a generated file:\n%s", strings.Join(got, "\n"))
	}
}

func TestTableIsChecked(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, clean)
	findings, err := tidy.Check(root, append(table[:len(table):len(table)],
		tidy.Row{Package: "core", Pure: true, Why: "again", Globals: []string{"registry"}},
		tidy.Row{Package: "gone", Why: "it was here"},
		tidy.Row{Package: "later"}))
	if err != nil {
		t.Fatal(err)
	}
	compare(t, lines(findings), []string{"internal/tidy/table.go:0: table: core has two rows",
		"internal/tidy/table.go:0: table: the row of later gives no reason"})
}

func TestLong(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, "-- x.go --\npackage x\n\nfunc f() {\n"+strings.Repeat("\n", 9)+"}\n\nfunc g() {}\n")
	findings, err := tidy.Long(root, 10)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, lines(findings), []string{"x.go:3: size: f has 11 lines, more than 10"})
}

func TestUnreadableSource(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, "-- x.go --\npackage\n")
	if _, err := tidy.Check(root, nil); err == nil {
		t.Error("a file that is not Go was passed over")
	}
	if _, err := tidy.Long(filepath.Join(root, "missing"), 1); err == nil {
		t.Error("a missing folder was passed over")
	}
}

// check writes trees into a fresh folder and returns the findings as lines.
func check(t *testing.T, trees ...string) []string {
	t.Helper()
	root := t.TempDir()
	for _, tree := range trees {
		write(t, root, tree)
	}
	findings, err := tidy.Check(root, table)
	if err != nil {
		t.Fatal(err)
	}
	return lines(findings)
}

func lines(findings []tidy.Finding) []string {
	var list []string
	for _, f := range findings {
		list = append(list, f.String())
	}
	return list
}

// write unpacks a tree: each file stands after a line "-- name --".
func write(t *testing.T, root, tree string) {
	t.Helper()
	for _, part := range strings.Split("\n"+tree, "\n-- ")[1:] {
		name, text, ok := strings.Cut(part, " --\n")
		if !ok {
			t.Fatalf("no name in %q", part)
		}
		full := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
