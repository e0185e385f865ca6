// Package tidy holds the house rules of the module and checks them: who may import whom, which packages are pure, which
// package may meet which third party, and what code and text must look like. Its test runs every rule over the module.
//
// The rules:
//
//   - table: every package has a row in [Table].
//   - arrow: files other than tests import only the packages of this module that their row names.
//   - vendor: a third party is imported only where a row names it; a test may also import its row's TestVendors.
//   - dot: nothing is imported by dot.
//   - pure: see pure.go.
//   - sleep: no test, and no test kit, calls time.Sleep.
//   - size: files other than tests have at most 600 lines, their functions at most 80.
//   - doc: every package and every exported identifier of it has a doc comment.
//   - folder: no folder is called util, common, manager or helper.
//   - path: no file names a path of the machine that it was written on.
//
// Generated files are free of size and doc; folders called testdata are free of all but path.
package tidy

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Limits of a file and of a function, in lines.
const (
	MaxFile     = 600
	MaxFunction = 80
	// LongFunction is where a function deserves a second look.
	LongFunction = 40
)

// Finding is one broken rule.
type Finding struct {
	// File is the slash-separated path from the root, Line counts from 1 (0 is the whole file).
	File string
	Line int
	// Rule is a name of the package documentation.
	Rule string
	Msg  string
}

func (f Finding) String() string { return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Rule, f.Msg) }

// file is one Go source file.
type file struct {
	name      string // from the root
	pkg       string // its folder from the root; "." is the root
	lines     int
	test      bool
	generated bool
	ast       *ast.File
}

// module is everything the rules look at.
type module struct {
	fset     *token.FileSet
	files    []*file
	findings []Finding
}

func (m *module) report(f *file, pos token.Pos, rule, format string, args ...any) {
	line := 0
	if pos.IsValid() {
		line = m.fset.Position(pos).Line
	}
	m.findings = append(m.findings, Finding{f.name, line, rule, fmt.Sprintf(format, args...)})
}

// Check runs every rule over the module at root and returns what it finds, in the order of files and lines.
func Check(root string, table []Row) ([]Finding, error) {
	m, err := load(root)
	if err != nil {
		return nil, err
	}
	rows := map[string]Row{}
	for _, row := range table {
		rows[row.Package] = row
	}
	m.checkPackages(rows)
	m.checkTable(table)
	for _, f := range m.files {
		row, ok := rows[f.pkg]
		if !ok {
			continue // reported by checkPackages
		}
		m.checkImports(f, row)
		m.checkSleep(f)
		if !f.test && !f.generated {
			m.checkSize(f)
			m.checkDoc(f)
		}
	}
	m.checkPure(rows)
	slices.SortFunc(m.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Msg, b.Msg))
	})
	return m.findings, nil
}

// Long lists the functions of the module, tests and generated files apart, that have more than the given number of lines.
func Long(root string, lines int) ([]Finding, error) {
	m, err := load(root)
	if err != nil {
		return nil, err
	}
	for _, f := range m.files {
		if !f.test && !f.generated {
			m.checkFunctions(f, lines)
		}
	}
	return m.findings, nil
}

// skippedFolders hold nothing of the project.
var skippedFolders = map[string]bool{".git": true, "bin": true, ".ci/tmp": true}

// load reads the module. Rules that need no syntax tree are checked on the way.
func load(root string) (*module, error) {
	m := &module{fset: token.NewFileSet()}
	err := filepath.WalkDir(root, func(full string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, full)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		switch {
		case d.IsDir() && skippedFolders[name]:
			return fs.SkipDir
		case d.IsDir():
			m.checkFolder(name)
			return nil
		case !d.Type().IsRegular():
			return nil
		}
		return m.read(full, name)
	})
	return m, err
}

// read reads one file, when it is text.
func (m *module) read(full, name string) error {
	if !isText(name) {
		return nil
	}
	text, err := os.ReadFile(full)
	if err != nil {
		return err
	}
	m.checkPaths(name, text)
	if path.Ext(name) != ".go" || slices.Contains(strings.Split(name, "/"), "testdata") {
		return nil
	}
	tree, err := parser.ParseFile(m.fset, full, text, parser.ParseComments)
	if err != nil {
		return err
	}
	m.files = append(m.files, &file{
		name: name, pkg: path.Dir(name), lines: strings.Count(string(text), "\n"),
		test: strings.HasSuffix(name, "_test.go"), generated: ast.IsGenerated(tree), ast: tree,
	})
	return nil
}
