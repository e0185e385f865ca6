package clickhouse

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"unicode"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/chclient"
)

// fail gives an error its code. nil, errors with a code and the end of the caller's context pass. No text of the URL gets in.
func (s *Sink) fail(ctx context.Context, doing string, err error) error {
	if err == nil || codes.Of(err) != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var told *chclient.Exception
	if errors.As(err, &told) {
		v, known := verdicts[told.Code]
		if !known {
			v = verdict{codes.SinkRefused, "the server refuses it"}
		}
		return &codes.Error{Code: v.code, Msg: s.name + ": " + doing + ": " + v.reason + " (" + short(told.Error()) + ")", Err: told}
	}
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &authority), errors.As(err, &host):
		return codes.New(codes.SinkDenied, "%s: the server's certificate is not trusted (%s): name its authority with &ca=FILE, and the host as the certificate does", s.name, cause(err))
	case errors.As(err, &record):
		return codes.New(codes.SinkInvalid, "%s: the server does not speak TLS on this port: name its secure one, or leave secure=true out", s.name)
	case errors.Is(err, chclient.ErrProtocol):
		return codes.New(codes.SinkInvalid, "%s: %s: %s; the port must be that of the native protocol, 9000 usually, or 9440 with secure=true", s.name, doing, cause(err))
	case doing == "connecting":
		return codes.New(codes.SinkUnavailable, "%s: the server cannot be reached (%s); check the address, the network and that it runs", s.name, cause(err))
	}
	return codes.New(codes.SinkUnavailable, "%s: %s: the connection was lost (%s); what stands is read again", s.name, doing, cause(err))
}

type verdict struct {
	code   *codes.Code
	reason string
}

// verdicts translate the server's error codes.
var verdicts = map[int32]verdict{
	16:  {codes.SinkInvalid, "a column is gone"},
	53:  {codes.SinkInvalid, "a column has another type"},
	60:  {codes.SinkInvalid, "the table is gone"},
	81:  {codes.SinkInvalid, "there is no such database"},
	115: {codes.SinkInvalid, "the server does not know a setting"},
	164: {codes.SinkDenied, "this user may only read"},
	192: {codes.SinkDenied, "there is no such user"},
	193: {codes.SinkDenied, "the password is wrong"},
	194: {codes.SinkDenied, "a password is needed"},
	195: {codes.SinkDenied, "this user may not come from this address"},
	291: {codes.SinkDenied, "this user may not use the database"},
	497: {codes.SinkDenied, "this user lacks a right: GRANT SELECT, INSERT on both tables"},
	516: {codes.SinkDenied, "the user or the password is wrong"},
	469: {codes.SinkRefused, "a constraint of the table refuses a row"},

	159: {codes.SinkUnavailable, "it took the server too long"},
	160: {codes.SinkUnavailable, "the server holds it for too slow"},
	201: {codes.SinkUnavailable, "the quota of this user is used up until its interval ends"},
	202: {codes.SinkUnavailable, "the server runs too many queries"},
	203: {codes.SinkUnavailable, "the server has no free connection"},
	209: {codes.SinkUnavailable, "the server's network is slow"},
	210: {codes.SinkUnavailable, "the server's network failed"},
	225: {codes.SinkUnavailable, "the server has no coordinator"},
	236: {codes.SinkUnavailable, "the server is going down"},
	241: {codes.SinkUnavailable, "the server is short of memory"},
	242: {codes.SinkUnavailable, "the table is read-only for now"},
	243: {codes.SinkUnavailable, "the server's disk is full; make room"},
	252: {codes.SinkUnavailable, "the table has more parts than the server merges; publish less often, or give it time"},
	285: {codes.SinkUnavailable, "too few replicas are alive"},
	286: {codes.SinkUnavailable, "too few replicas have it"},
	319: {codes.SinkUnavailable, "the server does not know whether it stands"},
	394: {codes.SinkUnavailable, "somebody ended the query"},
	999: {codes.SinkUnavailable, "the server's coordinator does not answer"},
}

// cause is the innermost reason, which knows no secret.
func cause(err error) string {
	var op *net.OpError
	switch {
	case errors.As(err, &op):
		return short(op.Error())
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the server hung up"
	}
	return short(err.Error())
}

// short makes one printable line of at most 200 bytes out of a text.
func short(text string) string {
	line := strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if len(line) > 200 {
		line = strings.ToValidUTF8(line[:200], "") + "…"
	}
	return line
}
