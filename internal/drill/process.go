package drill

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirstream/weir/codes"
)

// line is one line of a process's standard error.
type line struct {
	at   time.Time
	text string
}

// fired is a failpoint that a process has told of before it failed.
type fired struct {
	Failpoint, Action string
	Epoch             uint64
	// Partition, Position and Time are those of a point that is told and fails nothing.
	Partition int32
	Position  string
	Time      time.Time
	at        time.Time
}

// process is a weir that runs beside the drill.
type process struct {
	name    string
	cmd     *exec.Cmd
	pid     int
	started time.Time

	mu     sync.Mutex
	lines  []line
	faults []fired
	steps  []fired // points that were told
	stdout bytes.Buffer

	done  chan struct{}
	ended time.Time
}

// fleet is every process of a drill. Each is ended by its id.
type fleet struct {
	self string
	mu   sync.Mutex
	all  []*process
	shut bool
	logs string // folder of the processes' logs
}

// start runs weir with arguments; env is added to the environment.
func (f *fleet) start(name string, env []string, args ...string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(f.self, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	detach(p.cmd)
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, codes.New(codes.Internal, "process %s: %w", name, err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, codes.New(codes.Internal, "process %s: %w", name, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shut {
		return nil, context.Canceled
	}
	if err := p.cmd.Start(); err != nil {
		return nil, codes.New(codes.Internal, "process %s does not start: %w", name, err)
	}
	p.pid, p.started = p.cmd.Process.Pid, time.Now()
	f.all = append(f.all, p)
	var reading sync.WaitGroup
	reading.Go(func() { p.readErrors(stderr) })
	reading.Go(func() { p.readOutput(stdout) })
	go func() {
		reading.Wait()
		_ = p.cmd.Wait() // how it ended is in ProcessState
		p.ended = time.Now()
		close(p.done)
	}()
	return p, nil
}

func (p *process) readErrors(r io.Reader) {
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		l := line{time.Now(), in.Text()}
		var f fired
		isFault := strings.HasPrefix(l.text, "{") && json.Unmarshal([]byte(l.text), &f) == nil && f.Failpoint != ""
		p.mu.Lock()
		if isFault && f.Action == "tell" {
			p.steps = append(p.steps, f)
			p.mu.Unlock()
			continue
		}
		p.lines = append(p.lines, l)
		if isFault {
			f.at = l.at
			p.faults = append(p.faults, f)
		}
		p.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, r)
}

func (p *process) readOutput(r io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		p.mu.Lock()
		p.stdout.Write(buf[:n])
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// said is everything on standard error so far.
func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	for _, l := range p.lines {
		b.WriteString(l.text)
		b.WriteByte('\n')
	}
	return b.String()
}

// when is the time of the first line on standard error that has all words.
func (p *process) when(words ...string) (time.Time, string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(l.text, w) }) {
			return l.at, l.text, true
		}
	}
	return time.Time{}, "", false
}

// repeats is how often the processes whose names begin so say that they may publish again what they have published: they went on from their last commit, or
// a sink was down.
func (f *fleet) repeats(prefix string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.all {
		if strings.HasPrefix(p.name, prefix) {
			said := p.said()
			n += strings.Count(said, "the run goes on from its last commit") + strings.Count(said, "a sink is down")
		}
	}
	return n
}

// fault is the first failpoint that fired.
func (p *process) fault() (fired, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.faults) == 0 {
		return fired{}, false
	}
	return p.faults[0], true
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// code is the exit code, or -1 when a signal ended it; only after it has ended.
func (p *process) code() int { return p.cmd.ProcessState.ExitCode() }

// how says in words how it ended.
func (p *process) how() string {
	if p.running() {
		return "still running"
	}
	return p.cmd.ProcessState.String()
}

// wait waits for the end.
func (p *process) wait(ctx context.Context, within time.Duration) error {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return fmt.Errorf("process %s (pid %d) does not end within %s; it said:\n%s", p.name, p.pid, within, tail(p.said()))
	}
}

// tail is the end of a text.
func tail(s string) string {
	const most = 1500
	if len(s) > most {
		s = "…" + s[len(s)-most:]
	}
	return strings.TrimSpace(s)
}

// signal fails when the process has ended.
func (p *process) signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("process %s (pid %d) cannot be signalled: %w", p.name, p.pid, err)
	}
	return nil
}

// freeze stops it and returns once it stands still.
func (p *process) freeze(ctx context.Context) error {
	if err := p.signal(sigStop); err != nil {
		return err
	}
	return p.frozen(ctx)
}

// frozen waits until it stands still.
func (p *process) frozen(ctx context.Context) error {
	return poll(ctx, 10*time.Second, func() (bool, error) {
		if !p.running() {
			return false, fmt.Errorf("process %s (pid %d) ended instead of standing still: %s", p.name, p.pid, p.how())
		}
		return isStopped(p.pid), nil
	}, "process %s stands still", p.name)
}

func (p *process) thaw() error { return p.signal(sigCont) }

// end kills every process that still runs, by its id, and waits for them.
func (f *fleet) end() {
	f.mu.Lock()
	f.shut = true
	all := slices.Clone(f.all)
	f.mu.Unlock()
	for _, p := range all {
		if p.running() {
			_ = p.cmd.Process.Kill() // it may have ended meanwhile
		}
	}
	for _, p := range all {
		<-p.done
	}
}

// keepLogs writes what every process said to the folder of logs, and returns the names of the files by process.
func (f *fleet) keepLogs() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, p := range f.all {
		errs = append(errs, os.WriteFile(f.logOf(p), []byte(p.said()), 0o600))
	}
	return errors.Join(errs...)
}

func (f *fleet) logOf(p *process) string {
	return fmt.Sprintf("%s/%s.%d.log", f.logs, p.name, p.pid)
}

// poll asks until the answer is yes; what, in words, is awaited.
func poll(ctx context.Context, within time.Duration, ask func() (bool, error), what string, args ...any) error {
	const every = 10 * time.Millisecond
	timer := time.NewTimer(within)
	defer timer.Stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		ok, err := ask()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			return fmt.Errorf("not within %s: "+what, append([]any{within}, args...)...)
		case <-tick.C:
		}
	}
}
