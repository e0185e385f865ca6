package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// documents whose shell commands must work as they stand.
var documents = []string{"README.md", "docs/flow.md", "docs/performance.md", "docs/handoff.md", "docs/scaling.md", "docs/observing.md", "docs/consumers.md", "docs/quarantine.md"}

// elsewhere lists the lines that other checks run, each with the place.
var elsewhere = map[string]string{
	"go run ./cmd/weir demo": "TestDemo, and .ci/run itself",
	"make test":              ".ci/run",
	"make bench":             "run by hand: it takes minutes and asserts nothing",
}

// TestDocumentedCommands runs every line of every `sh` block of the documents, in order, in one folder per document. A yaml block
// that follows a sentence "Save this as `NAME`" is that file.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	for _, doc := range documents {
		t.Run(doc, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join("..", "..", doc))
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			ran := 0
			for _, b := range blocks(onFreePorts(t, string(text))) {
				switch {
				case b.saveAs != "":
					write(t, dir, b.saveAs, b.text)
				case b.lang == "sh":
					ran += runBlock(t, dir, b.text)
				}
			}
			if doc == "README.md" && ran < 8 {
				t.Errorf("only %d commands were found in %s; has its form changed?", ran, doc)
			}
		})
	}
}

// onFreePorts puts free ports in the place of those that the documents name, which something else may use where the test runs.
func onFreePorts(t *testing.T, text string) string {
	t.Helper()
	for _, port := range []string{"9092", "8787"} {
		text = strings.ReplaceAll(text, port, strconv.Itoa(freePort(t)))
	}
	return text
}

// Ports of documents are below those that systems and the servers of other tests are given: none of these may take one before the document's command does.
const firstPort, ports = 4_000, 6_000

var nextPort atomic.Int64

func init() { nextPort.Store(rand.Int64N(ports)) }

// freePort gives no port twice.
func freePort(t *testing.T) int {
	t.Helper()
	for range ports {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+nextPort.Add(1)%ports))
		if err == nil {
			defer l.Close()
			return l.Addr().(*net.TCPAddr).Port
		}
	}
	t.Fatal("no port is free")
	return 0
}

type block struct{ lang, saveAs, text string }

var saveAs = regexp.MustCompile("[Ss]ave this as `([^`]+)`")

func blocks(text string) []block {
	var all []block
	var open *block
	name := ""
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch {
		case open == nil && strings.HasPrefix(trimmed, "```"):
			open = &block{lang: strings.TrimPrefix(trimmed, "```"), saveAs: name}
			name = ""
		case open != nil && trimmed == "```":
			all = append(all, *open)
			open = nil
		case open != nil:
			open.text += line
		default:
			if m := saveAs.FindStringSubmatch(line); m != nil {
				name = m[1]
			}
		}
	}
	return all
}

// runBlock runs each line with `weir` being this test binary; a broker, and a daemon without an end, is left running until the test ends.
func runBlock(t *testing.T, dir, text string) int { return runBlockWith(t, dir, text, nil) }

// runBlockWith has more variables in the environment.
func runBlockWith(t *testing.T, dir, text string, env []string) int {
	ran := 0
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") || elsewhere[line] != "" {
			continue
		}
		ran++
		if strings.HasPrefix(line, "weir broker") || strings.HasPrefix(line, "weir serve") {
			serve(t, dir, strings.Fields(line)[1:])
			continue
		}
		if strings.HasPrefix(line, "weir run") && strings.Contains(line, "--scope partition") {
			p := start(t, dir, strings.Fields(line)[1:]...)
			t.Cleanup(func() {
				p.Process.Signal(os.Interrupt)
				p.end(t)
			})
			continue
		}
		if strings.HasPrefix(line, "weir run") && strings.Contains(line, "--listen") {
			l := startLogged(t, dir, "run", env, strings.Fields(line)[1:]...)
			l.await(t, "listening", func() bool { return strings.Contains(l.said(t), "listening") })
			continue
		}
		if strings.HasPrefix(line, "curl ") {
			_, err := exec.LookPath("curl")
			needs(t, err == nil, "curl, which the documents use to speak to the API")
		}
		// A shell function stands in for the installed binary, so that pipes and redirections of the document work.
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("bash", "-c", `set -euo pipefail; weir() { "$WEIR_SELF" "$@"; }; `+line)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), asWeir+"=1", "WEIR_SELF="+self)
		cmd.Env = append(cmd.Env, env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	return ran
}

// serve starts a command that runs until it is stopped, and waits for the line that says it is ready.
func serve(t *testing.T, dir string, args []string) {
	t.Helper()
	cmd := command(t, dir, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	})
	scan := bufio.NewScanner(out)
	for scan.Scan() {
		if strings.Contains(scan.Text(), "listening") {
			return
		}
	}
	t.Fatalf("weir %s ended without listening", strings.Join(args, " "))
}
