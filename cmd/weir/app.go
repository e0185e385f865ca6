package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

// app is what every command shares: the streams of the process, the output mode and the context that signals end.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	json           bool
	verbose        bool
	log            *slog.Logger
	// level is that of log. jsonLog: stderr is a log in JSON, and nothing else is written there.
	level   slog.LevelVar
	jsonLog bool
	// watch is nil unless the command listens.
	watch *watching
	// kill ends when the user asked a second time: nothing is awaited any more.
	kill context.Context
	// signal is the first signal that came, or nil.
	signal os.Signal
	// reached is the command that the arguments led to, once it has ended.
	reached *cobra.Command
	// written is standard output, and remembers what could not be written.
	written *writeFailure
	// working: the run has begun, and knows itself how it ends.
	working bool
	// cleanUp, unless nil, is called before the process stops at once.
	cleanUp func()
}

// usageError is a mistake on the command line: exit 2.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }

// outcome ends a command with an exit code and without an error message: what there was to say has been said.
type outcome int

func (o outcome) Error() string { return fmt.Sprintf("exit %d", int(o)) }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "weir",
		Short:         "Stream processing in event time: batch, replay and stream give the same bits",
		Long:          "weir reads keyed, timestamped records, computes over them in event time and publishes each result once.\nStart with `weir demo`; it needs nothing installed and leaves nothing behind.",
		Example:       "  weir demo\n  weir parity --json\n  weir lint flow.yaml",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.json {
				return a.needsSubcommand(cmd, args)
			}
			return cmd.Help()
		},
	}
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print one JSON document on stdout; notices go to stderr")
	root.PersistentFlags().BoolVarP(&a.verbose, "verbose", "v", false, "log what happens, on stderr")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.PersistentPreRun = func(*cobra.Command, []string) { a.log = a.logger() }
	return root
}

func (a *app) logger() *slog.Logger {
	a.level.Set(slog.LevelWarn)
	if a.verbose {
		a.level.Set(slog.LevelInfo)
	}
	return slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: &a.level}))
}

// quiet is the logger of commands that cause failures on purpose: it tells of them only when asked to.
func (a *app) quiet() *slog.Logger {
	if a.verbose {
		return a.log
	}
	return nil
}

// oneStop is the time within which two SIGTERM are one: timeout(1) and the like signal a process, and then its group.
const oneStop = 50 * time.Millisecond

// execute runs the command under a context that the first SIGINT or SIGTERM ends; the second ends the process at once.
func (a *app) execute(root *cobra.Command, args []string) int {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	kill, killNow := context.WithCancel(context.Background())
	defer killNow()
	a.kill = kill
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	var first time.Time
	done := make(chan int, 1)
	go func() {
		root.SetArgs(args)
		reached, err := root.ExecuteContextC(ctx)
		a.reached = reached
		if err == nil {
			err = a.written.failed()
		}
		done <- a.exitCode(err)
	}()
	for {
		select {
		case code := <-done:
			return code
		case s := <-signals:
			if s == syscall.SIGTERM && a.signal == s && time.Since(first) < oneStop {
				continue
			}
			if ctx.Err() != nil {
				killNow()
				if a.cleanUp != nil {
					a.cleanUp()
				}
				a.notice("weir: stopped at once; what was committed stays, the rest is done again by the next start\n")
				return codes.ExitInterrupted
			}
			a.signal, first = s, time.Now()
			a.notice("weir: stopping after the work in hand; once more to stop at once\n")
			stop()
		}
	}
}

// exitCode says what went wrong and turns it into the contract's exit code.
func (a *app) exitCode(err error) int {
	var o outcome
	var u usageError
	switch {
	case err == nil:
		return codes.ExitOK
	case errors.As(err, &o):
		return int(o)
	case errors.As(err, &u), isCobraUsage(err):
		a.fail("USAGE", err.Error(), usageCure(a.reached, err.Error()))
		return codes.ExitUsage
	case errors.Is(err, context.Canceled):
		a.fail("INTERRUPTED", "interrupted before the end", "What was committed stays; start again to go on.")
		return codes.ExitInterrupted
	}
	if c := codes.Of(err); c != nil {
		a.fail(c.Name, withoutCode(err, c), c.Cure)
		return c.Exit
	}
	a.fail("INTERNAL", err.Error(), codes.Internal.Cure)
	return codes.ExitRuntime
}

// isCobraUsage recognises the errors that cobra makes itself, which have no type.
func isCobraUsage(err error) bool {
	for _, start := range []string{"unknown command", "accepts ", "requires at least", "required flag", "if any flags in the group", "at least one of the flags", "invalid argument"} {
		if strings.HasPrefix(err.Error(), start) {
			return true
		}
	}
	return false
}

func (a *app) fail(code, message, cure string) {
	if a.jsonLog {
		a.say(slog.LevelError, message, "code", code, "cure", cure)
	} else {
		fmt.Fprintf(a.stderr, "weir: %s: %s\n", code, printable(message))
		if cure != "" && !contains(message, cure) {
			fmt.Fprintf(a.stderr, "      %s\n", cure)
		}
	}
	if a.json {
		a.document(map[string]any{"error": map[string]any{"code": code, "message": message, "cure": cure}})
	}
}

// document prints one canonical JSON document.
func (a *app) document(v any) error {
	b, err := record.AppendJSON(nil, v)
	if err != nil {
		return codes.New(codes.Internal, "the answer cannot be written as JSON: %w", err)
	}
	if _, err := a.stdout.Write(append(b, '\n')); err != nil {
		return codes.New(codes.OutputUnwritable, "standard output: %w", err)
	}
	return nil
}

// printf writes to standard output for people.
func (a *app) printf(format string, args ...any) { fmt.Fprintf(a.stdout, format, args...) }

// notice writes to standard error for people.
func (a *app) notice(format string, args ...any) {
	if a.jsonLog {
		a.say(slog.LevelInfo, fmt.Sprintf(format, args...))
		return
	}
	fmt.Fprintf(a.stderr, format, args...)
}

// terminal says whether standard error is one, where a line may be written over.
func (a *app) terminal() bool {
	f, ok := a.stderr.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// printable escapes the control characters that record data may carry, but keeps line breaks of our own messages.
func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == '\n' || r == '\t' || (r >= 0x20 && r != 0x7f && (r < 0x80 || r > 0x9f) && (r < 0x202a || r > 0x202e) && (r < 0x2066 || r > 0x2069)) {
			b.WriteRune(r)
			continue
		}
		fmt.Fprintf(&b, "\\u%04x", r)
	}
	return b.String()
}

// readFile reads a small file that the user named.
func readFile(what, path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, codes.New(codes.FileMissing, "%s: %w", what, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, codes.New(codes.FileMissing, "%s: %w", what, err)
	}
	if int64(len(b)) > limit {
		return nil, codes.New(codes.FileMissing, "%s: %s is larger than %d bytes; is it the right file?", what, path, limit)
	}
	return b, nil
}
