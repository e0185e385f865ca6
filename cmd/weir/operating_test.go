package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/backpressure"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/internal/pgtest"
	"github.com/weirstream/weir/status"
)

func operating(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "operating.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// asUser is a URL of a server, for another user and database.
func asUser(t *testing.T, base, user, database string) string {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + database
	q := u.Query()
	if user != "" {
		u.User = url.User(user)
		q.Del("user")
		q.Del("password")
		if u.Host == "" { // then the user stands in the query
			q.Set("user", user)
			u.User = nil
		}
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// TestOperatingDocument runs every command of docs/operating.md, in order, on a PostgreSQL and a broker of its own.
func TestOperatingDocument(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t, nil)
	if !pgtest.Private() {
		t.Skip("the document makes roles and a database, and this server is not ours")
	}
	for _, tool := range []string{"psql", "pg_dump", "pg_restore"} {
		_, err := exec.LookPath(tool)
		needs(t, err == nil, tool+", of PostgreSQL's client")
	}
	roles, err := os.ReadFile(filepath.Join("..", "..", "deploy", "postgres", "roles.sql"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "deploy", "postgres"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "deploy/postgres/roles.sql", string(roles))
	// Each line is a process of its own; the URLs are in the environment, as they would be of whoever follows the document.
	var env []string
	for name, value := range map[string]string{"WEIR_SUPER": db.Super, "WEIR_ADMIN": asUser(t, db.Super, "weir_admin", "weir"),
		"WEIR_STORE": asUser(t, db.Super, "weir", "weir"), "WEIR_RESTORED": asUser(t, db.Super, "weir_admin", "weir_restored"),
		"WEIR_RESTORED_STORE": asUser(t, db.Super, "weir", "weir_restored")} {
		env = append(env, name+"="+value)
	}
	ran := 0
	for _, b := range blocks(onFreePorts(t, operating(t))) {
		switch {
		case b.saveAs != "":
			write(t, dir, b.saveAs, b.text)
		case b.lang == "sh":
			ran += runBlockWith(t, dir, b.text, env)
		}
	}
	if ran < 35 {
		t.Errorf("only %d commands were found; has the form of the document changed?", ran)
	}
}

var coded = regexp.MustCompile("`([A-Z][A-Z_]+)`")

// section is what stands under a heading, up to the next of its level or a higher one.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "\n"+heading+"\n")
	if !ok {
		t.Fatalf("there is no heading %q", heading)
	}
	level := strings.Repeat("#", strings.Count(strings.SplitN(heading, " ", 2)[0], "#"))
	for i := 1; i <= len(level); i++ {
		rest, _, _ = strings.Cut(rest, "\n"+level[:i]+" ")
	}
	return rest
}

// Every code of the catalogue has a place among the error codes of the document, one place, and nothing else has. What blocks a recovery has a row there too.
func TestOperatingDocumentHasEveryCode(t *testing.T) {
	t.Parallel()
	text := operating(t)
	count := map[string]int{}
	for line := range strings.Lines(section(t, text, "## Error codes")) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 {
			continue
		}
		for _, m := range coded.FindAllStringSubmatch(cells[1], -1) {
			count[m[1]]++
		}
	}
	blocked := section(t, text, "### Recovery blocked")
	for _, c := range codes.All() {
		if count[c.Name] != 1 {
			t.Errorf("%s stands %d times among the error codes of docs/operating.md; it has to stand there once, with what to do", c.Name, count[c.Name])
		}
		delete(count, c.Name)
		if c.Exit == codes.ExitRecovery && !strings.Contains(blocked, "| `"+c.Name+"` |") {
			t.Errorf("docs/operating.md does not say what to do when %s blocks a recovery", c.Name)
		}
	}
	for name := range count {
		t.Errorf("%s is no code", name)
	}
	exits := section(t, text, "## Exit codes")
	for _, n := range []string{"0", "1", "2", "3", "4", "5", "6", "7", "130"} {
		if !strings.Contains(exits, "\n| "+n+" |") {
			t.Errorf("exit code %s is missing", n)
		}
	}
}

// Every state that a command shows is explained.
func TestOperatingDocumentHasEveryState(t *testing.T) {
	t.Parallel()
	states := section(t, operating(t), "## States")
	var want []string
	for _, s := range status.States() {
		want = append(want, string(s))
	}
	for _, p := range []status.Phase{status.PhaseRunning, status.PhaseWaiting, status.PhaseRecoveryBlocked, status.PhaseStopped} {
		want = append(want, string(p))
	}
	for _, s := range []backpressure.State{backpressure.Flowing, backpressure.SourcePaused, backpressure.ProcessPaused, backpressure.RecoveryBlocked} {
		want = append(want, s.String())
	}
	for _, p := range []control.RunPhase{control.Queued, control.Running, control.Succeeded, control.Failed, control.Cancelled} {
		want = append(want, string(p))
	}
	slices.Sort(want)
	for _, s := range slices.Compact(want) {
		if !strings.Contains(states, "`"+s+"`") {
			t.Errorf("the state %s is not explained", s)
		}
	}
}

// Every reason that `weir why` can give is explained. The list is that of the constants, which have no other place where they all stand.
func TestOperatingDocumentHasEveryReason(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "status", "why.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	explained, found := section(t, operating(t), "### It does not move"), 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Why") || len(spec.Values) != 1 {
			return true
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
			found++
			if code := strings.Trim(lit.Value, `"`); !strings.Contains(explained, "`"+code+"`") {
				t.Errorf("the reason %s is not explained", code)
			}
		}
		return true
	})
	if found < 20 {
		t.Errorf("only %d reasons were found in status/why.go", found)
	}
}
