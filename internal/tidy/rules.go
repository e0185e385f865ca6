package tidy

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// checkPackages reports packages without a row and packages without a doc comment.
func (m *module) checkPackages(rows map[string]Row) {
	first := map[string]*file{}
	documented := map[string]bool{}
	for _, f := range m.files {
		if first[f.pkg] == nil || first[f.pkg].test && !f.test {
			first[f.pkg] = f
		}
		documented[f.pkg] = documented[f.pkg] || !f.test && f.ast.Doc != nil
	}
	for pkg, f := range first {
		if _, ok := rows[pkg]; !ok {
			m.report(f, token.NoPos, "table", "package %s has no row in internal/tidy/table.go: declare what it may import, and why it exists", pkg)
		}
		if !documented[pkg] && !f.test {
			m.report(f, f.ast.Package, "doc", "package %s has no doc comment", pkg)
		}
	}
}

// checkTable reports a second row of a package and rows without a reason.
func (m *module) checkTable(table []Row) {
	seen := map[string]bool{}
	here := &file{name: "internal/tidy/table.go"}
	for _, row := range table {
		switch {
		case seen[row.Package]:
			m.report(here, token.NoPos, "table", "%s has two rows", row.Package)
		case row.Why == "":
			m.report(here, token.NoPos, "table", "the row of %s gives no reason", row.Package)
		}
		seen[row.Package] = true
	}
}

// checkImports reports arrows and vendors that the row does not allow.
func (m *module) checkImports(f *file, row Row) {
	for _, spec := range f.ast.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser would have refused it
		}
		if spec.Name != nil && spec.Name.Name == "." {
			m.report(f, spec.Pos(), "dot", "an import by dot hides where a name comes from")
		}
		own, isOwn := ownPackage(target)
		switch {
		case isOwn && !f.test && !allows(row.Imports, own):
			m.report(f, spec.Pos(), "arrow", "%s must not import %s (%s)", f.pkg, own, row.Why)
		case !isOwn && isVendor(target) && !hasPrefix(row.Vendors, target) && !(f.test && hasPrefix(row.TestVendors, target)):
			m.report(f, spec.Pos(), "vendor", "%s must not import %s (%s)", f.pkg, target, row.Why)
		}
	}
}

// ownPackage is the folder of an import of this module.
func ownPackage(target string) (folder string, ok bool) {
	if target == Module {
		return ".", true
	}
	return strings.CutPrefix(target, Module+"/")
}

// isVendor says whether an import is neither ours nor of the standard library, whose paths have no dot in their first part.
func isVendor(target string) bool {
	first, _, _ := strings.Cut(target, "/")
	return strings.Contains(first, ".") || target == "C"
}

func allows(patterns []string, folder string) bool {
	for _, p := range patterns {
		below, all := strings.CutSuffix(p, "*")
		if p == folder || all && strings.HasPrefix(folder, below) {
			return true
		}
	}
	return false
}

func hasPrefix(prefixes []string, target string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return target == p || strings.HasPrefix(target, p+"/") })
}

// checkSleep reports time.Sleep in tests and in test kits, packages whose name ends in "test", unless it stands inside of a call of
// synctest.Test, where time is virtual and nothing waits.
func (m *module) checkSleep(f *file) {
	if !f.test && !strings.HasSuffix(f.pkg, "test") {
		return
	}
	bubbles := bubbles(f)
	for _, use := range uses(f, "time") {
		if use.Sel.Name == "Sleep" && !slices.ContainsFunc(bubbles, func(n ast.Node) bool { return n.Pos() <= use.Pos() && use.Pos() < n.End() }) {
			m.report(f, use.Pos(), "sleep", "a test waits for a signal or runs on virtual time (testing/synctest): it never sleeps")
		}
	}
}

// bubbles are the calls of synctest.Test.
func bubbles(f *file) (calls []ast.Node) {
	tests := uses(f, "testing/synctest")
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && slices.ContainsFunc(tests, func(s *ast.SelectorExpr) bool { return call.Fun == s && s.Sel.Name == "Test" }) {
			calls = append(calls, call)
		}
		return true
	})
	return calls
}

// uses lists what a file selects from an imported package, whatever name it imports it under.
func uses(f *file, imported string) []*ast.SelectorExpr {
	name := ""
	for _, spec := range f.ast.Imports {
		if spec.Path.Value != strconv.Quote(imported) {
			continue
		}
		if name = path.Base(imported); name == "v2" {
			name = path.Base(path.Dir(imported))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
	}
	var list []*ast.SelectorExpr
	if name == "" {
		return nil
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			// An identifier that the parser resolved is a variable of that name.
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == name && x.Obj == nil {
				list = append(list, sel)
			}
		}
		return true
	})
	return list
}

func (m *module) checkSize(f *file) {
	if f.lines > MaxFile {
		m.report(f, token.NoPos, "size", "%d lines, more than %d: split the file by what changes together", f.lines, MaxFile)
	}
	m.checkFunctions(f, MaxFunction)
}

func (m *module) checkFunctions(f *file, limit int) {
	for _, decl := range f.ast.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if n := m.fset.Position(fn.End()).Line - m.fset.Position(fn.Pos()).Line + 1; n > limit {
			m.report(f, fn.Pos(), "size", "%s has %d lines, more than %d", fn.Name.Name, n, limit)
		}
	}
}

// selfExplaining are methods of well-known interfaces, which need no comment.
var selfExplaining = map[string]bool{"Error": true, "Unwrap": true, "String": true, "Len": true, "Less": true, "Swap": true,
	"Read": true, "Write": true, "Close": true, "ServeHTTP": true}

// checkDoc reports exported identifiers without a comment: on itself, on its group, or behind it on its line.
func (m *module) checkDoc(f *file) {
	for _, decl := range f.ast.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Doc == nil && d.Name.IsExported() && ast.IsExported(receiver(d)) && !(d.Recv != nil && selfExplaining[d.Name.Name]) {
				m.report(f, d.Pos(), "doc", "%s has no doc comment", d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if d.Doc == nil {
					m.checkSpecDoc(f, spec)
				}
			}
		}
	}
}

// receiver is the type that a method belongs to; for a function, any exported name.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return "Function"
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

func (m *module) checkSpecDoc(f *file, spec ast.Spec) {
	var names []*ast.Ident
	var comment bool
	switch s := spec.(type) {
	case *ast.TypeSpec:
		names, comment = []*ast.Ident{s.Name}, s.Doc != nil || s.Comment != nil
	case *ast.ValueSpec:
		names, comment = s.Names, s.Doc != nil || s.Comment != nil
	}
	for _, name := range names {
		if name.IsExported() && !comment {
			m.report(f, name.Pos(), "doc", "%s has no doc comment", name.Name)
		}
	}
}

// vagueFolders say nothing about what is in them.
var vagueFolders = regexp.MustCompile(`^(util|common|manager|helper)s?$`)

func (m *module) checkFolder(name string) {
	if vagueFolders.MatchString(path.Base(name)) {
		m.report(&file{name: name}, token.NoPos, "folder", "name the folder after what it is for")
	}
}

// textFiles are the kinds of files that people read and write.
var textFiles = regexp.MustCompile(`(\.(go|md|mod|yaml|yml|json|jsonl|csv|txt|sh|sql|html|css|js|toml|cfg)|(^|/)(Makefile|Dockerfile|LICENSE|NOTICE|\.gitignore|\.ci/.*))$`)

func isText(name string) bool { return textFiles.MatchString(name) }

// machinePaths are the folders of the machines that the project is written on. They stand in pieces here, so as not to find themselves.
var machinePaths = regexp.MustCompile("(^|[^A-Za-z0-9_.~/-])/(work|farm|root)/" + "|" + `\.\./sha` + "red")

func (m *module) checkPaths(name string, text []byte) {
	for i, line := range strings.Split(string(text), "\n") {
		if found := machinePaths.FindString(line); found != "" {
			m.findings = append(m.findings, Finding{name, i + 1, "path", "names a path of one machine: " + strings.TrimSpace(found)})
		}
	}
}
