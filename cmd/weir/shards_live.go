package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/status"
)

// liveFlags name processes that may be asked beside the store.
type liveFlags struct {
	urls []string
	urlFlags
}

func (o *liveFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&o.urls, "url", nil, "also ask a process of the run, at the address that 'weir run --listen' says; may be given for each")
	f.StringVar(&o.token, "token", "", "their bearer token, as a reference: env:NAME or file:PATH")
	f.StringVar(&o.ca, "url-ca", "", "file with the certificates, in PEM, of the authority that signed the processes' (default: those that the system trusts)")
}

// askFlights asks the processes what they have handed out and not committed. One that does not answer is told on stderr, and leaves its shards unknown: the
// others are shown all the same.
func (a *app) askFlights(ctx context.Context, o *liveFlags, run string, shown []shardShown) error {
	if len(o.urls) == 0 && (o.token != "" || o.ca != "") {
		return usagef("--token and --url-ca go with --url")
	}
	for _, url := range o.urls {
		one := o.urlFlags
		one.url = url
		r, err := one.liveReport(ctx, run)
		if err != nil {
			if code := codes.Of(err); code == nil || code.Exit != codes.ExitUnreachable || ctx.Err() != nil {
				return err
			}
			a.notice("weir: the process at %s was not asked, and what it has in flight is not shown: %v\n", printable(url), err)
			continue
		}
		takeFlights(shown, r)
	}
	return nil
}

// takeFlights takes what a process tells of the shards that it works on.
func takeFlights(shown []shardShown, r status.Report) {
	told := map[int32]*status.Undone{}
	for i := range r.Runs {
		if r.Runs[i].Lease.State != status.LeaseHeld {
			continue // somebody else works on them by now
		}
		for k := range r.Runs[i].Partitions {
			p := &r.Runs[i].Partitions[k]
			told[p.Partition] = p.Undone
		}
	}
	for i := range shown {
		if u := told[shown[i].Number]; u != nil {
			shown[i].flight = u
		}
	}
}

// flightText is what is handed out and not committed.
func flightText(u *status.Undone) string {
	switch {
	case u == nil:
		return "-"
	case u.Oldest == nil || u.Since == nil:
		return "0"
	}
	return fmt.Sprintf("%d (%d B) from %s since %s", u.Records, u.Bytes, *u.Oldest, stamp(*u.Since))
}

// undoneSince is flightText in short.
func undoneSince(u *status.Undone) string {
	switch {
	case u == nil:
		return "-"
	case u.Since == nil:
		return "0"
	}
	return fmt.Sprintf("%d since %s", u.Records, seconds(*u.Since))
}

func flightDocument(u *status.Undone) any {
	if u == nil {
		return nil
	}
	doc := map[string]any{"records": u.Records, "bytes": u.Bytes, "oldest": nil, "since": nil}
	if u.Oldest != nil && u.Since != nil {
		doc["oldest"], doc["since"] = *u.Oldest, stamp(*u.Since)
	}
	return doc
}
