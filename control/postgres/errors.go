package postgres

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// undone says whether the server has certainly undone, or never got, what was sent, and the same may work the next time.
func undone(err error) bool {
	if codes.Of(err) != nil {
		return false
	}
	if state := stateOf(err); state != "" {
		return state == "40001" || state == "40P01"
	}
	var connecting *pgconn.ConnectError
	return !errors.As(err, &connecting) && pgconn.SafeToRetry(err)
}

// stateOf is the SQLSTATE of an error, or "".
func stateOf(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// pause waits before the n-th repetition, with jitter, so that those who met do not meet again.
func pause(ctx context.Context, n int) error {
	most := min(time.Millisecond<<n, 200*time.Millisecond)
	timer := time.NewTimer(time.Duration(rand.Int64N(int64(most))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fail gives an error its code and names the store. Errors that have a code already pass, and so does a context's own: whoever cancelled knows why.
// No text of the connection string gets in.
func (s *Store) fail(ctx context.Context, doing string, err error) error {
	return fail(ctx, s.name, doing, err)
}

func fail(ctx context.Context, name, doing string, err error) error {
	if err == nil || codes.Of(err) != nil {
		return err
	}
	if cerr := ctx.Err(); cerr != nil {
		return fmt.Errorf("store %s: %s: %w", name, doing, cerr)
	}
	var e *pgconn.PgError
	if errors.As(err, &e) {
		code, reason := verdict(e.Code)
		return &codes.Error{Code: code, Msg: fmt.Sprintf("store %s: %s: %s (PostgreSQL %s: %s)", name, doing, reason, e.Code, short(e.Message)), Err: e}
	}
	var connecting *pgconn.ConnectError
	if errors.As(err, &connecting) {
		return codes.New(codes.StoreUnavailable, "store %s: %s: the server cannot be reached (%s); check the address, the network and that it runs", name, doing, cause(err))
	}
	return codes.New(codes.StoreUnavailable, "store %s: %s: the connection was lost (%s); if something was sent, it is unknown whether it stands", name, doing, cause(err))
}

// cause is the innermost reason that is safe to show: the network's, which knows no secret.
func cause(err error) string {
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.As(err, &op):
		return short(op.Error())
	case errors.As(err, &dns):
		return short(dns.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.Is(err, context.Canceled):
		return "given up"
	}
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return short(err.Error())
		}
		err = next
	}
}

// short makes one printable line out of a text.
func short(text string) string {
	const most = 200
	line := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	if line = strings.Join(strings.Fields(line), " "); len(line) > most {
		line = strings.ToValidUTF8(line[:most], "") + "…"
	}
	return line
}

// verdicts translate SQLSTATEs; what is not listed goes by its class.
var verdicts = map[string]struct {
	code   *codes.Code
	reason string
}{
	"28P01": {codes.StoreDenied, "the password is wrong"},
	"28000": {codes.StoreDenied, "the server does not let this user in"},
	"42501": {codes.StoreDenied, "the role lacks a right; grant it weir_runtime"},
	"3D000": {codes.StoreInvalid, "there is no such database"},
	"25006": {codes.StoreUnavailable, "the server is read-only; weir needs the primary"},
	"25P03": {codes.StoreUnavailable, "the transaction stood still for too long and was ended"},
	"53100": {codes.StoreUnavailable, "the server's disk is full; make room"},
	"53200": {codes.StoreUnavailable, "the server is out of memory"},
	"53300": {codes.StoreUnavailable, "the server has too many connections"},
	"55P03": {codes.StoreUnavailable, "a lock was not to be had in time: another transaction holds it"},
	"57014": {codes.StoreUnavailable, "the statement took too long and was cancelled"},
	"40001": {codes.StoreUnavailable, "other transactions were in the way every time"},
	"40P01": {codes.StoreUnavailable, "it met a deadlock every time"},
	"42P01": {codes.StoreOlder, "a table is missing; run weir migrate"},
	"42703": {codes.StoreOlder, "a column is missing; run weir migrate"},
	"42883": {codes.StoreOlder, "a function is missing; run weir migrate"},
	"3F000": {codes.StoreOlder, "the schema is missing; run weir migrate"},
	"22021": {codes.Internal, "a text has bytes that cannot be kept"},
	"54000": {codes.LimitReached, "a value is larger than PostgreSQL takes"},
}

func verdict(state string) (code *codes.Code, reason string) {
	if v, ok := verdicts[state]; ok {
		return v.code, v.reason
	}
	class := state[:min(len(state), 2)]
	switch class {
	case "08", "57", "58", "53":
		return codes.StoreUnavailable, "the server is going down, starting, or short of something; it is unknown whether what was sent stands"
	case "28":
		return codes.StoreDenied, "the server does not let this user in"
	case "XX":
		return codes.JournalCorrupt, "the server says that its data is damaged, or that it has failed"
	}
	return codes.Internal, "an unexpected answer"
}

// refusal turns what the schema's functions raise into the refusal that it stands for. Other errors pass.
func refusal(err error, l control.Lease) error {
	var e *pgconn.PgError
	if !errors.As(err, &e) || !strings.HasPrefix(e.Code, "WR") {
		return err
	}
	switch e.Code {
	case "WR001":
		row := leaseRow(l.Name, e)
		// Whatever the clock was, the row was not ours or had ended.
		return row.CheckHolder(l, row.Until)
	case "WR002":
		return control.Held(leaseRow(l.Name, e))
	case "WR003":
		return control.Conflict(e.Message, "sha256:"+e.Detail, "sha256:"+e.Hint)
	case "WR004":
		_, err := control.Started(e.Message, control.RunPhase(e.Detail), false)
		return err
	case "WR007":
		return control.CheckFinish(e.Message, control.RunPhase(e.Detail))
	case "WR005":
		return unknownRun(e.Message)
	case "WR008":
		return codes.New(codes.Internal, "the outbox has no event %s", e.Message)
	}
	return err
}

func unknownRun(id string) error {
	return codes.New(codes.RunUnknown, "the store holds no run %q", id)
}

// leaseRow is how a lease stands, as refuse_lease tells it.
func leaseRow(name string, e *pgconn.PgError) control.LeaseRow {
	token, _ := strconv.ParseUint(e.Detail, 10, 64) // digits
	until, _ := strconv.ParseInt(e.Hint, 10, 64)
	return control.LeaseRow{Name: name, Owner: e.Message, Token: control.FenceToken(token), Until: time.UnixMicro(until)}
}

func digestText(digest []byte) string { return "sha256:" + hex.EncodeToString(digest) }
