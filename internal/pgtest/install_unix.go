//go:build unix

package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// places is where the server's programs may be, and whether they may be installed.
type places struct {
	// path is searched for initdb and apt-get.
	path []string
	// patterns are folders that hold initdb and postgres; of several the one of the newest version is taken.
	patterns []string
	// ci and root must both hold before anything is installed: nobody's own machine is changed by running tests on it.
	ci, root bool
}

// here is this machine: PATH, and the versioned folders of Debian, the PostgreSQL project's own packages and Homebrew.
func here() places {
	return places{
		path:     filepath.SplitList(os.Getenv("PATH")),
		patterns: []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin"},
		ci:       os.Getenv("CI") != "",
		root:     os.Geteuid() == 0,
	}
}

// binaries finds the folder of initdb and postgres. Where there is none it installs the package, if it may. It says what to do where it may not.
func (p places) binaries() (string, error) {
	if dir := p.installed(); dir != "" {
		return dir, nil
	}
	const missing = "initdb and postgres are neither on PATH nor in /usr/lib/postgresql; install the package postgresql, or name a server in WEIR_TEST_POSTGRES"
	apt := p.look("apt-get")
	switch {
	case !p.ci:
		return "", errNone{missing + " (with CI set, root and apt-get, it would have been installed)"}
	case !p.root:
		return "", errNone{missing + " (it was not installed: this is not root)"}
	case apt == "":
		return "", errNone{missing + " (it was not installed: there is no apt-get)"}
	}
	if err := install(apt); err != nil {
		return "", fmt.Errorf("%s; installing it failed: %w", missing, err)
	}
	if dir := p.installed(); dir != "" {
		return dir, nil
	}
	return "", errNone{missing + " (it was installed, and is still not there)"}
}

// install installs the package. Other test binaries may be at it too, so it waits for the package manager's lock. Package lists may be
// missing, as in images of containers; then they are fetched first.
func install(apt string) error {
	run := func(args ...string) error {
		cmd := exec.Command(apt, append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("apt-get %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out[max(0, len(out)-2000):])))
		}
		return nil
	}
	packages := []string{"install", "-y", "--no-install-recommends", "postgresql"}
	if run(packages...) == nil {
		return nil
	}
	if err := run("update"); err != nil {
		return err
	}
	return run(packages...)
}

// look finds a program.
func (p places) look(name string) string {
	for _, dir := range p.path {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// installed is the folder of initdb and postgres, or "".
func (p places) installed() string {
	has := func(dir string) bool {
		return places{path: []string{dir}}.look("initdb") != "" && places{path: []string{dir}}.look("postgres") != ""
	}
	if path := p.look("initdb"); path != "" {
		if real, err := filepath.EvalSymlinks(path); err == nil && has(filepath.Dir(real)) {
			return filepath.Dir(real)
		}
	}
	var dirs []string
	for _, pattern := range p.patterns {
		found, _ := filepath.Glob(pattern) // the patterns are well-formed
		dirs = append(dirs, found...)
	}
	slices.SortFunc(dirs, func(a, b string) int {
		if d := version(b) - version(a); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	if i := slices.IndexFunc(dirs, has); i >= 0 {
		return dirs[i]
	}
	return ""
}

// version is that in the name of a folder such as /usr/lib/postgresql/15/bin, or 0.
func version(dir string) int {
	if m := versioned.FindStringSubmatch(dir); m != nil {
		n, _ := strconv.Atoi(m[1]) // digits
		return n
	}
	return 0
}
