// Command testreport runs `go test` with the given arguments and tells the outcome in few lines: a line per package, the whole
// output of what failed, a line for every skipped test with its reason, and a closing count.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

type report struct {
	out                     io.Writer
	lines                   map[string][]string
	passed, failed, skipped int
	skips                   []string
}

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	os.Exit(run(args, os.Stdout))
}

func run(args []string, out io.Writer) int {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		return 1
	}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		return 1
	}
	r := &report{out: out, lines: map[string][]string{}}
	r.read(pipe)
	err = cmd.Wait()
	r.close()
	if err != nil || r.failed > 0 || r.passed == 0 {
		return 1
	}
	return 0
}

func (r *report) read(in io.Reader) {
	scan := bufio.NewScanner(in)
	scan.Buffer(make([]byte, 0, 1<<20), 64<<20)
	for scan.Scan() {
		var e event
		if json.Unmarshal(scan.Bytes(), &e) != nil || e.Action == "" {
			fmt.Fprintln(r.out, scan.Text())
			continue
		}
		r.take(e)
	}
}

func (r *report) take(e event) {
	name := e.Package + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		r.lines[name] = append(r.lines[name], e.Output)
	case "pass":
		if e.Test != "" {
			r.passed++
		} else {
			fmt.Fprintf(r.out, "ok    %s %.1fs\n", e.Package, e.Elapsed)
		}
		delete(r.lines, name)
	case "skip":
		if e.Test != "" {
			r.skipped++
			r.skips = append(r.skips, fmt.Sprintf("SKIP  %s: %s", name, reason(r.lines[name])))
		}
		delete(r.lines, name)
	case "fail", "build-fail":
		fmt.Fprintf(r.out, "FAIL  %s %.1fs\n%s", name, e.Elapsed, strings.Join(r.lines[name], ""))
		if e.Test != "" || len(r.lines[name]) > 0 {
			r.failed++
		}
		delete(r.lines, name)
	}
}

func reason(lines []string) string {
	for _, l := range slices.Backward(lines) {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "---") && !strings.HasPrefix(l, "===") {
			return l
		}
	}
	return "no reason given"
}

func (r *report) close() {
	for _, s := range r.skips {
		fmt.Fprintln(r.out, s)
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
}
