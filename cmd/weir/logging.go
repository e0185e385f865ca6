package main

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/server"
)

// logFlags say how a daemon logs.
type logFlags struct{ logFormat, logLevel string }

func (o *logFlags) addLog(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.logFormat, "log-format", "text", "what is written on stderr: text, or json, one document a line, notices and errors among them; records are in neither")
	f.StringVar(&o.logLevel, "log-level", "", "debug, info, warn or error (default warn, or info with --verbose); with --listen it can be changed while the run goes on")
}

func (o *logFlags) checkLog() error {
	if o.logFormat != "text" && o.logFormat != "json" {
		return usagef("--log-format must be text or json, not %q", o.logFormat)
	}
	if o.logLevel == "" {
		return nil
	}
	if _, err := server.ParseLevel(o.logLevel); err != nil {
		return usagef("--log-level must be debug, info, warn or error, not %q", o.logLevel)
	}
	return nil
}

// useLog makes the flags count from here on.
func (a *app) useLog(o logFlags) {
	if level, err := server.ParseLevel(o.logLevel); err == nil {
		a.level.Set(level)
	}
	if o.logFormat == "json" {
		a.jsonLog = true
		a.log = slog.New(slog.NewJSONHandler(a.stderr, &slog.HandlerOptions{Level: &a.level, ReplaceAttr: withUnit}))
	}
}

// withUnit writes a stretch of time as text, such as "1.5ms", as a log for people does: a bare number would not say what it counts.
func withUnit(_ []string, at slog.Attr) slog.Attr {
	if at.Value.Kind() == slog.KindDuration {
		at.Value = slog.StringValue(at.Value.Duration().String())
	}
	return at
}

// say writes what people are to be told to the log, whatever its level. It is for a log in JSON, which nothing else may stand between.
func (a *app) say(level slog.Level, text string, args ...any) {
	r := slog.NewRecord(time.Now(), level, strings.TrimPrefix(strings.TrimSpace(text), "weir: "), 0)
	r.Add(args...)
	_ = a.log.Handler().Handle(context.Background(), r) // stderr that is gone cannot be told
}
