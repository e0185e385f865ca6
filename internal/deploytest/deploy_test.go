package deploytest

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/weirstream/weir/internal/pgtest"
)

// root of the repository, from here.
const root = "../.."

var scratch string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "weir-deploy")
	if err != nil {
		panic(err)
	}
	scratch = dir
	code := pgtest.Run(m, pgtest.Config{})
	os.RemoveAll(dir)
	os.Exit(code)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// strictly reads all documents of a YAML file into what next returns; a field that it does not have is an error.
func strictly(t *testing.T, path string, next func(kind string) any) {
	t.Helper()
	text := read(t, path)
	kinds := yaml.NewDecoder(strings.NewReader(text))
	d := yaml.NewDecoder(strings.NewReader(text))
	d.KnownFields(true)
	for n := 0; ; n++ {
		var head struct{ Kind string }
		if err := kinds.Decode(&head); errors.Is(err, io.EOF) {
			if n == 0 {
				t.Fatalf("%s holds nothing", path)
			}
			return
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if err := d.Decode(next(head.Kind)); err != nil {
			t.Fatalf("%s, document %d (%s): %v", path, n+1, head.Kind, err)
		}
	}
}

// needs fails where CI is set, and skips with the reason otherwise.
func needs(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("CI lacks %s", what)
	}
	t.Skipf("this machine lacks %s", what)
}

// buildLine is the command by which the image builds the binary.
func buildLine(t *testing.T) string {
	t.Helper()
	line := regexp.MustCompile(`(?m)^RUN (CGO_ENABLED=0 go build .*)$`).FindStringSubmatch(read(t, "deploy/Dockerfile"))
	if line == nil || !strings.Contains(line[1], "-o /out/weir ") {
		t.Fatal("deploy/Dockerfile has no line that builds /out/weir without cgo")
	}
	return line[1]
}

var built struct {
	once sync.Once
	path string
	out  []byte
	err  error
}

// binary builds weir as the image does, once.
func binary(t *testing.T) string {
	t.Helper()
	line := buildLine(t)
	built.once.Do(func() {
		built.path = filepath.Join(scratch, "weir")
		cmd := exec.Command("sh", "-c", strings.Replace(line, "/out/weir", built.path, 1))
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "VERSION=v0.0.0-deploytest")
		built.out, built.err = cmd.CombinedOutput()
	})
	if built.err != nil {
		t.Fatalf("%s: %v\n%s", line, built.err, built.out)
	}
	return built.path
}

// The binary of the image is static, knows its version, and says nothing of the folder that it was built in.
func TestBinaryIsStatic(t *testing.T) {
	t.Parallel()
	path := binary(t)
	out, err := exec.Command(path, "version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "v0.0.0-deploytest") {
		t.Errorf("%v: %s", err, out)
	}
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte(here+"/cmd/weir")) {
		t.Errorf("the binary names the folder %s", here)
	}
	if runtime.GOOS != "linux" {
		t.Skip("what is static is seen from an ELF file, which binaries of this system are not")
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_DYNAMIC || p.Type == elf.PT_INTERP {
			t.Errorf("the binary has a segment %v: it wants a loader, and the image has none", p.Type)
		}
	}
	if libs, err := f.ImportedLibraries(); err == nil && len(libs) > 0 {
		t.Errorf("the binary wants %v", libs)
	}
}

// accepts has the binary read a command line of a manifest. Files that it names are not here: that the first of them is missing is all that may be
// wrong with it.
func accepts(t *testing.T, place string, args []string) {
	t.Helper()
	if slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, "$") }) {
		t.Errorf("%s: something was not filled in: %q", place, args)
	}
	if out, err := exec.Command(binary(t), append(slices.Clone(args), "--help")...).CombinedOutput(); err != nil {
		t.Errorf("%s: weir does not take %q: %v\n%s", place, args, err, out)
		return
	}
	cmd := exec.Command(binary(t), args...)
	cmd.Env = []string{}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Errorf("%s: %q: %v\n%s", place, args, err, out)
		return
	}
	switch {
	case args[0] == "probe" && exit.ExitCode() == 5: // nobody listens here
	case exit.ExitCode() == 3 && strings.Contains(string(out), "FILE_MISSING"):
	default:
		t.Errorf("%s: weir %s: exit %d\n%s", place, strings.Join(args, " "), exit.ExitCode(), out)
	}
}

// flag is the value of a flag on a command line, "" if it is not there.
func flag(args []string, name string) string {
	for i, a := range args {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			return v
		}
		if a == "--"+name && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

// secretless finds what looks like a secret in the open.
func secretless(t *testing.T, place string, args []string) {
	t.Helper()
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		if regexp.MustCompile(`postgres://[^/]*:[^/]*@`).MatchString(a) {
			t.Errorf("%s: a password stands in %s", place, name)
		}
		for _, secret := range []string{"--store", "--sasl-password", "--token"} {
			if name == secret && !strings.HasPrefix(value, "file:") {
				t.Errorf("%s: %s is not a file", place, name)
			}
		}
	}
}
