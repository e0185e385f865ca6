package deploytest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// instruction is one of a Dockerfile, its lines joined.
type instruction struct{ verb, rest string }

func instructions(text string) (out []instruction) {
	for _, line := range strings.Split(strings.ReplaceAll(text, "\\\n", " "), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		verb, rest, _ := strings.Cut(line, " ")
		out = append(out, instruction{verb, rest})
	}
	return out
}

// lintDockerfile is what we ask of an image, since no engine is here to build it.
func lintDockerfile(text, goVersion string) (wrong []string) {
	say := func(s string) { wrong = append(wrong, s) }
	var stages, users, entry []string
	for _, in := range instructions(text) {
		switch in.verb {
		case "FROM":
			image, _, _ := strings.Cut(in.rest, " ")
			stages, users, entry = append(stages, image), nil, nil
			if image != "scratch" && (!strings.Contains(image, ":") || strings.HasSuffix(image, ":latest")) {
				say("the image " + image + " has no version")
			}
			if v, ok := strings.CutPrefix(image, "golang:"); ok && !strings.HasPrefix(v, goVersion+"-") {
				say("Go is " + v + " here and " + goVersion + " in go.mod")
			}
		case "USER":
			users = append(users, in.rest)
		case "ENTRYPOINT":
			if json.Unmarshal([]byte(in.rest), &entry) != nil {
				say("ENTRYPOINT is run by a shell, which passes no signals on")
			}
		case "COPY":
			if !strings.HasPrefix(in.rest, "--from=") && len(stages) > 1 {
				say("COPY " + in.rest + " brings something of the context into the last stage")
			}
		case "ARG", "ENV":
			if regexp.MustCompile(`(?i)pass|secret|token|key`).MatchString(in.rest) {
				say(in.verb + " " + in.rest + " keeps a secret in the image")
			}
		case "RUN", "WORKDIR", "STOPSIGNAL":
		default:
			say(in.verb + " is not expected")
		}
	}
	switch {
	case len(stages) < 2 || stages[len(stages)-1] != "scratch":
		say("the last stage is not empty")
	case len(users) != 1 || !regexp.MustCompile(`^[1-9][0-9]*:[1-9][0-9]*$`).MatchString(users[0]):
		say("the last stage has no user that is a number and not root")
	case !slices.Equal(entry, []string{"/weir"}):
		say("the image does not start weir")
	}
	return wrong
}

func TestDockerfile(t *testing.T) {
	t.Parallel()
	text, version := read(t, "deploy/Dockerfile"), ""
	if m := regexp.MustCompile(`(?m)^go ([0-9.]+)$`).FindStringSubmatch(read(t, "go.mod")); m != nil {
		version = m[1]
	}
	for _, w := range lintDockerfile(text, version) {
		t.Error(w)
	}
	if line := buildLine(t); !strings.Contains(line, "-trimpath") {
		t.Errorf("the binary would name the folder that it is built in: %s", line)
	}
	// That the check looks, it shows on files that are wrong.
	for from, to := range map[string]string{
		"USER 65532:65532":     "USER root",
		"FROM scratch":         "FROM debian",
		`ENTRYPOINT ["/weir"]`: "ENTRYPOINT /weir run",
		`ARG VERSION=""`:       "ARG TOKEN",
		version + "-bookworm":  "latest",
		"STOPSIGNAL SIGTERM":   "ADD https://example.com/x /x",
	} {
		if bad := strings.Replace(text, from, to, 1); bad == text || len(lintDockerfile(bad, version)) == 0 {
			t.Errorf("nothing is said of %q in the place of %q", to, from)
		}
	}
	ignored := strings.Fields(read(t, "deploy/Dockerfile.dockerignore"))
	for _, want := range []string{".git", "**/secrets"} {
		if !slices.Contains(ignored, want) {
			t.Errorf("%s would be sent to the builder", want)
		}
	}
}

// The part of compose files that ours uses.
type compose struct {
	Name     string
	Hardened map[string]any `yaml:"x-hardened"`
	Services map[string]*service
	Secrets  map[string]struct{ File string }
	Volumes  map[string]struct{}
}

type service struct {
	Image       string
	Build       struct{ Context, Dockerfile string }
	User        string
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	SecurityOpt []string `yaml:"security_opt"`
	Entrypoint  []string
	Command     []string
	Environment map[string]string
	Ports       []string
	Volumes     []string
	Secrets     []string
	MemLimit    string `yaml:"mem_limit"`
	Healthcheck struct {
		Test              []string
		Interval, Timeout string
		Retries           int
		StartPeriod       string `yaml:"start_period"`
	}
	StopGrace string `yaml:"stop_grace_period"`
	Restart   string
	DependsOn map[string]struct{ Condition string } `yaml:"depends_on"`
}

func TestCompose(t *testing.T) {
	t.Parallel()
	const folder = "deploy/compose"
	var c compose
	strictly(t, folder+"/compose.yaml", func(string) any { return &c })
	for name, s := range c.Services {
		if !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s may get more rights than it starts with", name)
		}
		if _, tag, ok := strings.Cut(filepath.Base(s.Image), ":"); !ok || tag == "latest" {
			t.Errorf("%s: the image %q has no version", name, s.Image)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s: port %s is open to the network", name, p)
			}
		}
		for env := range s.Environment {
			if strings.Contains(env, "PASSWORD") && !strings.HasSuffix(env, "_FILE") {
				t.Errorf("%s: %s stands in the environment", name, env)
			}
		}
		for _, secret := range s.Secrets {
			if c.Secrets[secret].File != "./secrets/"+secret {
				t.Errorf("%s: the secret %s is no file of the folder secrets", name, secret)
			}
		}
		for other, d := range s.DependsOn {
			if c.Services[other] == nil || d.Condition == "service_healthy" && c.Services[other].Healthcheck.Test == nil {
				t.Errorf("%s waits for %s, which cannot be told", name, other)
			}
		}
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			if _, named := c.Volumes[from]; named {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, folder, from)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if strings.HasPrefix(s.Image, "weir:") {
			ofWeir(t, name, s)
		}
	}
	if s := c.Services["weir"]; s == nil || flag(s.Command, "listen") != "127.0.0.1:8787" {
		t.Error("weir does not listen on loopback alone")
	} else {
		accepts(t, "compose: healthcheck", s.Healthcheck.Test[2:])
		if d, err := time.ParseDuration(s.StopGrace); err != nil || d < leastGrace {
			t.Errorf("weir is given %s to stop, and needs %s", s.StopGrace, leastGrace)
		}
	}
}

// leastGrace is what a daemon may need to stop in order: the epoch in hand, a last checkpoint, the lease.
const leastGrace = time.Minute

// ofWeir is what we ask of a container that runs weir.
func ofWeir(t *testing.T, name string, s *service) {
	t.Helper()
	if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !strings.HasPrefix(s.User, "${WEIR_UID:?") {
		t.Errorf("%s: a container of weir has a read-only file system, no capabilities and a user: %+v", name, s)
	}
	for _, a := range s.Command {
		if file, ok := strings.CutPrefix(a, "file:/run/secrets/"); ok && !slices.Contains(s.Secrets, file) {
			t.Errorf("%s reads the secret %s, which it is not given", name, file)
		}
		if file, ok := strings.CutPrefix(a, "--store=file:/run/secrets/"); ok && !slices.Contains(s.Secrets, file) {
			t.Errorf("%s reads the secret %s, which it is not given", name, file)
		}
	}
	if s.Secrets == nil || name == "weir" && slices.Contains(s.Secrets, "store_admin") {
		t.Errorf("%s has the secrets %v", name, s.Secrets)
	}
	accepts(t, "compose: "+name, s.Command)
	secretless(t, "compose: "+name, s.Command)
}

// The passwords that secrets.sh makes are for their owner alone, long, different, and made once.
func TestComposeSecrets(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		needs(t, "bash")
	}
	dir := t.TempDir()
	for _, script := range []string{"secrets.sh", "postgres-init.sh"} {
		text := read(t, "deploy/compose/"+script)
		if err := os.WriteFile(filepath.Join(dir, script), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("bash", "-n", filepath.Join(dir, script)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
	}
	var first string
	for range 2 {
		if out, err := exec.Command("bash", filepath.Join(dir, "secrets.sh")).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		all, seen := "", map[string]bool{}
		for _, name := range []string{"postgres_password", "weir_admin_password", "weir_password", "store_admin", "store"} {
			path := filepath.Join(dir, "secrets", name)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != 0o600 || len(text) < 48 || seen[string(text)] {
				t.Errorf("%s: mode %v, %d bytes", name, info.Mode(), len(text))
			}
			seen[string(text)] = true
			all += string(text)
		}
		if first != "" && all != first {
			t.Error("the second time has changed a password")
		}
		first = all
	}
	if !strings.Contains(first, "postgres://weir:") {
		t.Error("the store is not reached as the login weir")
	}
}
