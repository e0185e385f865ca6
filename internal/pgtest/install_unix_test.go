//go:build unix

package pgtest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// program writes an executable.
func program(t *testing.T, path, script string) {
	t.Helper()
	// A child that is forked meanwhile would inherit the open file, and what is open for writing cannot be run.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755)); err != nil {
		t.Fatal(err)
	}
}

// A machine without PostgreSQL: where it may, the package is installed and found; where it may not, one line says why and what to do.
func TestInstallsWhereItMay(t *testing.T) {
	t.Parallel()
	const makes = `mkdir -p "$root/lib/15/bin" && for p in initdb postgres; do printf '#!/bin/sh\n' > "$root/lib/15/bin/$p"; chmod +x "$root/lib/15/bin/$p"; done`
	for name, c := range map[string]struct {
		ci, root bool
		// apt is the script of apt-get, which is given $root; "" is none.
		apt string
		// calls are the commands that apt-get was given; says is in the error, "" when the programs are found.
		calls, says string
	}{
		"installed":              {true, true, makes, "install", ""},
		"lists are fetched":      {true, true, `if [ "$command" = update ]; then touch "$root/lists"; elif [ -e "$root/lists" ]; then ` + makes + `; else echo "Unable to locate package" >&2; exit 100; fi`, "install update install", ""},
		"not root":               {true, false, makes, "", "this is not root"},
		"no apt-get":             {true, true, "", "", "there is no apt-get"},
		"somebody's own machine": {false, true, makes, "", "with CI set"},
		"no network":             {true, true, `echo "Could not resolve deb.debian.org" >&2; exit 100`, "install update", "Could not resolve"},
		"installed elsewhere":    {true, true, `:`, "install", "still not there"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			if c.apt != "" {
				program(t, filepath.Join(root, "bin", "apt-get"), `root='`+root+`'
[ "$1 $2" = "-o DPkg::Lock::Timeout=300" ] || exit 1
command="$3"; echo "$command" >> "$root/calls"
[ "$DEBIAN_FRONTEND" = noninteractive ] || exit 1
`+c.apt+"\n")
			}
			p := places{path: []string{filepath.Join(root, "bin")}, patterns: []string{filepath.Join(root, "lib", "*", "bin")}, ci: c.ci, root: c.root}
			dir, err := p.binaries()
			if c.says == "" {
				if want := filepath.Join(root, "lib", "15", "bin"); err != nil || dir != want {
					t.Errorf("%q, %v, want %q", dir, err, want)
				}
			} else if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "WEIR_TEST_POSTGRES") {
				t.Errorf("%q, %v, want an error with %q and the cure", dir, err, c.says)
			}
			calls, err := os.ReadFile(filepath.Join(root, "calls"))
			if got := strings.Join(strings.Fields(string(calls)), " "); got != c.calls || err != nil && c.calls != "" {
				t.Errorf("apt-get was given %q, want %q", got, c.calls)
			}
		})
	}
}

// PATH comes first, then the newest version; half an installation is none.
func TestFindsTheNewest(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	p := places{path: []string{filepath.Join(root, "bin")}, patterns: []string{filepath.Join(root, "lib", "*", "bin")}}
	for _, path := range []string{"lib/9/bin/initdb", "lib/9/bin/postgres", "lib/15/bin/initdb", "lib/15/bin/postgres", "lib/16/bin/initdb"} {
		program(t, filepath.Join(root, path), "")
	}
	if got, want := p.installed(), filepath.Join(root, "lib", "15", "bin"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// Debian's wrapper on PATH is a link into the folder of its version.
	if err := errors.Join(os.Mkdir(filepath.Join(root, "bin"), 0o755), os.Symlink(filepath.Join(root, "lib/9/bin/initdb"), filepath.Join(root, "bin", "initdb"))); err != nil {
		t.Fatal(err)
	}
	if got, want := p.installed(), filepath.Join(root, "lib", "9", "bin"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
