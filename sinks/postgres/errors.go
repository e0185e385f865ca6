package postgres

import (
	"context"
	"errors"
	"net"
	"strings"
	"unicode"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirstream/weir/codes"
)

// fail gives an error its code. nil, errors with a code and the end of the caller's context pass. No text of the URL gets in.
func (s *Sink) fail(ctx context.Context, doing string, err error) error {
	if err == nil || codes.Of(err) != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var e *pgconn.PgError
	if errors.As(err, &e) {
		code, reason := verdict(e.Code)
		return &codes.Error{Code: code, Msg: s.name + ": " + doing + ": " + reason + " (PostgreSQL " + e.Code + ": " + short(e.Message) + ")", Err: e}
	}
	var connecting *pgconn.ConnectError
	if errors.As(err, &connecting) {
		return codes.New(codes.SinkUnavailable, "%s: the server cannot be reached (%s); check the address, the network and that it runs", s.name, cause(err))
	}
	return codes.New(codes.SinkUnavailable, "%s: %s: the connection was lost (%s); what stands is read again", s.name, doing, cause(err))
}

// verdicts translate SQLSTATEs; what is not listed goes by its class.
var verdicts = map[string]struct {
	code   *codes.Code
	reason string
}{
	"28P01": {codes.SinkDenied, "the password is wrong"},
	"42501": {codes.SinkDenied, "this role lacks a right"},
	"3D000": {codes.SinkInvalid, "there is no such database"},
	"3F000": {codes.SinkInvalid, "there is no such schema"},
	"42P01": {codes.SinkInvalid, "the table is gone"},
	"42703": {codes.SinkInvalid, "a column is gone"},
	"23505": {codes.SinkRefused, "a row stands already that the progress does not know: was the progress table changed by hand?"},
	"25006": {codes.SinkUnavailable, "the server is read-only; rows go to the primary"},
	"25P03": {codes.SinkUnavailable, "the transaction stood still for too long and was ended"},
	"55P03": {codes.SinkUnavailable, "another transaction holds the lock"},
	"53100": {codes.SinkUnavailable, "the server's disk is full; make room"},
	"54000": {codes.SinkRefused, "a row is larger than the server takes; of rows that are revisions the key has to fit an index, which takes about 2,700 bytes"},
}

func verdict(state string) (code *codes.Code, reason string) {
	if v, ok := verdicts[state]; ok {
		return v.code, v.reason
	}
	switch state[:min(2, len(state))] {
	case "08", "40", "53", "57", "58":
		return codes.SinkUnavailable, "the server is going down, starting, or short of something"
	case "28":
		return codes.SinkDenied, "the server does not let this user in"
	case "23":
		return codes.SinkRefused, "a constraint of the table refuses a row"
	case "42":
		return codes.SinkInvalid, "the table is not as it was"
	}
	return codes.SinkRefused, "the server refuses it"
}

// cause is the innermost reason, which knows no secret.
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
	}
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return short(err.Error())
		}
		err = next
	}
}

// short makes one printable line of at most 200 bytes out of a text.
func short(text string) string {
	line := strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if len(line) > 200 {
		line = strings.ToValidUTF8(line[:200], "") + "…"
	}
	return line
}
