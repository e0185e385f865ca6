package tidy

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
)

// A pure package depends on nothing but the calls made to it, so that the same calls give the same answers in every mode, test and
// replay. Its files other than tests
//
//   - start no goroutine;
//   - do not import what does I/O, logs or shares state between goroutines, nor math/rand, whose generator is global;
//   - use of time only types, constants and arithmetic, and of math/rand/v2 only generators of their own;
//   - do not write to package variables, but for those that their row names.

// impureImports are refused with everything below them.
var impureImports = []string{"os", "net", "io/fs", "io/ioutil", "log", "sync", "syscall", "math/rand", "database/sql", "crypto/rand", "C"}

// pureImports are allowed all the same.
var pureImports = []string{"math/rand/v2"}

// clock is what reads a clock or waits.
var clock = []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "NewTimer", "NewTicker", "Tick"}

// ownRandom is what of math/rand/v2 does not touch its global generator.
var ownRandom = []string{"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "PCG", "ChaCha8", "Zipf", "Source"}

func (m *module) checkPure(rows map[string]Row) {
	globals := map[string]map[string]bool{}
	for _, f := range m.files {
		if rows[f.pkg].Pure && !f.test {
			if globals[f.pkg] == nil {
				globals[f.pkg] = map[string]bool{}
			}
			for _, name := range packageVars(f) {
				globals[f.pkg][name] = !slices.Contains(rows[f.pkg].Globals, name)
			}
		}
	}
	for _, f := range m.files {
		if rows[f.pkg].Pure && !f.test {
			m.checkPureImports(f)
			m.checkPureCalls(f)
			m.checkGlobals(f, globals[f.pkg])
		}
	}
}

func (m *module) checkPureImports(f *file) {
	for _, spec := range f.ast.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err == nil && hasPrefix(impureImports, target) && !hasPrefix(pureImports, target) {
			m.report(f, spec.Pos(), "pure", "%s is pure and must not import %s", f.pkg, target)
		}
	}
}

func (m *module) checkPureCalls(f *file) {
	for _, use := range uses(f, "time") {
		if slices.Contains(clock, use.Sel.Name) {
			m.report(f, use.Pos(), "pure", "%s is pure and must not call time.%s: time arrives as an event", f.pkg, use.Sel.Name)
		}
	}
	for _, use := range uses(f, "math/rand/v2") {
		if !slices.Contains(ownRandom, use.Sel.Name) {
			m.report(f, use.Pos(), "pure", "%s is pure and must not use the global generator of rand.%s", f.pkg, use.Sel.Name)
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if s, ok := n.(*ast.GoStmt); ok {
			m.report(f, s.Pos(), "pure", "%s is pure and must not start a goroutine", f.pkg)
		}
		return true
	})
}

// packageVars are the names of the package variables that a file declares.
func packageVars(f *file) (names []string) {
	for _, decl := range f.ast.Decls {
		if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.VAR {
			for _, spec := range d.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

// checkGlobals reports assignments to package variables, or into them. It sees names only: what a pointer or a method does to a
// variable escapes it.
func (m *module) checkGlobals(f *file, globals map[string]bool) {
	written := func(target ast.Expr) {
		if name := root(target); name != nil && globals[name.Name] && isPackageLevel(f, name) {
			m.report(f, target.Pos(), "pure", "%s is pure and must not change the package variable %s", f.pkg, name.Name)
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch s := n.(type) {
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				for _, target := range s.Lhs {
					written(target)
				}
			}
		case *ast.IncDecStmt:
			written(s.X)
		}
		return true
	})
}

// root is the variable that an assignment goes into: m of m[k].x.
func root(target ast.Expr) *ast.Ident {
	for {
		switch x := target.(type) {
		case *ast.Ident:
			return x
		case *ast.IndexExpr:
			target = x.X
		case *ast.SelectorExpr:
			target = x.X
		case *ast.ParenExpr:
			target = x.X
		case *ast.StarExpr:
			target = x.X
		default:
			return nil
		}
	}
}

// isPackageLevel says whether a name of a file means a variable of its package. The parser resolves names within the file: what is
// left open is declared in another file of the package.
func isPackageLevel(f *file, name *ast.Ident) bool {
	return name.Obj == nil || f.ast.Scope != nil && f.ast.Scope.Lookup(name.Name) == name.Obj
}
