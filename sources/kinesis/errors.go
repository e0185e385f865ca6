package kinesis

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/aws/smithy-go"

	"github.com/weirstream/weir/codes"
)

// kind is what an error of a call means for who made it.
type kind uint8

const (
	failed    kind = iota // tell the caller
	throttled             // ask again later; normal
	unsteady              // the service or the network failed; ask again
	expired               // the iterator is too old; take another one
)

// kindOf sorts errors of calls.
func kindOf(err error) kind {
	var iterator *types.ExpiredIteratorException
	var api smithy.APIError
	if errors.As(err, &iterator) {
		return expired
	}
	if !errors.As(err, &api) {
		if refused(err) {
			return failed
		}
		return unsteady
	}
	switch api.ErrorCode() {
	case "ProvisionedThroughputExceededException", "LimitExceededException", "KMSThrottlingException", "ThrottlingException", "RequestLimitExceeded", "Throttling":
		return throttled
	case "ResourceInUseException": // another subscription is not over yet
		return throttled
	case "InternalFailure", "InternalFailureException", "ServiceUnavailable", "ServiceUnavailableException", "InternalServerError":
		return unsteady
	}
	return failed
}

// refused says whether an error that is no answer of the service will be the same the next time: no credentials, or a name that is none.
func refused(err error) bool {
	var dns *net.DNSError
	var op *smithy.OperationError
	if errors.As(err, &dns) {
		return dns.IsNotFound
	}
	return errors.As(err, &op) && strings.Contains(err.Error(), "get credentials") || strings.Contains(err.Error(), "failed to refresh cached credentials")
}

// explain makes an error of a call into one with a code that names the call.
func (s *Stream) explain(call string, err error) error {
	var api smithy.APIError
	var missing *types.ResourceNotFoundException
	var dns *net.DNSError
	switch {
	case errors.As(err, &missing):
		return codes.New(codes.TopicMissing, "stream %q does not exist in this account and region %q (name another one with --region or AWS_REGION), or is being deleted (%s): %w", s.cfg.Stream, s.region(), call, err)
	case errors.As(err, &api):
		return s.explainAPI(call, api)
	case errors.As(err, &dns) && dns.IsNotFound:
		return codes.New(codes.SourceFailure, "no host %s is known, which would be Kinesis in region %q: name the stream's region with --region or AWS_REGION, or give this machine a way to resolve names (%s of stream %q): %w",
			dns.Name, s.region(), call, s.cfg.Stream, err)
	case strings.Contains(err.Error(), "credentials"):
		return codes.New(codes.AccessDenied, "there are no credentials to ask Kinesis with (%s): set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role: %w", call, err)
	}
	return codes.New(codes.SourceFailure, "Kinesis does not answer (%s of stream %q): %w", call, s.cfg.Stream, err)
}

func (s *Stream) region() string { return s.cfg.Client.Options().Region }

func (s *Stream) explainAPI(call string, err smithy.APIError) error {
	code := err.ErrorCode()
	switch {
	case strings.HasPrefix(code, "KMS"):
		return codes.New(codes.AccessDenied, "stream %q is encrypted with a key that cannot be used (%s): %w", s.cfg.Stream, call, err)
	case code == "AccessDeniedException" || code == "UnrecognizedClientException" || code == "InvalidSignatureException" || code == "MissingAuthenticationTokenException" ||
		code == "ExpiredTokenException" || code == "IncompleteSignatureException":
		return codes.New(codes.AccessDenied, "kinesis:%s is not allowed on stream %q in region %q: %w", call, s.cfg.Stream, s.region(), err)
	case code == "InvalidArgumentException":
		return codes.New(codes.RunMismatch, "Kinesis refuses %s on stream %q: the position or the time is not one of this shard: %w", call, s.cfg.Stream, err)
	case kindOf(err) == throttled || kindOf(err) == unsteady:
		return codes.New(codes.SourceFailure, "Kinesis refuses %s on stream %q for now: %w", call, s.cfg.Stream, err)
	}
	return codes.New(codes.BrokerRefused, "Kinesis refuses %s on stream %q: %w", call, s.cfg.Stream, err)
}

const (
	minPause = 250 * time.Millisecond
	maxPause = 5 * time.Second
)

// pause doubles with every failure in a row, up to five seconds.
func pause(failures int) time.Duration { return min(minPause<<min(failures-1, 10), maxPause) }

// wait is false when ctx has ended.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
