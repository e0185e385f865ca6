package kinesis_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/smithy-go"
	smithyendpoints "github.com/aws/smithy-go/endpoints"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/kinesistest"
	"github.com/weirstream/weir/sources/kinesis"
)

// regions resolves the endpoints of a world of two regions, as the SDK's own resolver does for all of AWS: any other name leads to a host that there
// is not.
type regions map[string]string

func (r regions) ResolveEndpoint(_ context.Context, p awskinesis.EndpointParameters) (out smithyendpoints.Endpoint, err error) {
	at, ok := r[aws.ToString(p.Region)]
	if !ok {
		at = "http://kinesis." + aws.ToString(p.Region) + ".amazonaws.invalid"
	}
	u, err := url.Parse(at)
	if err == nil {
		out.URI = *u
	}
	return out, err
}

// A region in which the stream is not, one that does not take the signature, and one that there is not: the message names the region, and where another
// one is named. None of them is asked again and again.
func TestWrongRegion(t *testing.T) {
	t.Parallel()
	serve := func(kind string) string {
		server := httptest.NewServer(&kinesistest.Scripted{Answer: func(string, map[string]any) kinesistest.Answer { return kinesistest.Answer{Type: kind} }})
		t.Cleanup(server.Close)
		return server.URL
	}
	world := regions{"eu-west-1": serve("ResourceNotFoundException"), "eu-west-2": serve("InvalidSignatureException")}
	dead := &http.Client{Transport: &http.Transport{DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
		if host, _, _ := net.SplitHostPort(addr); strings.HasSuffix(host, ".invalid") {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}}
		}
		return net.Dial("tcp", addr)
	}}}
	for region, want := range map[string]struct {
		code  *codes.Code
		words []string
	}{
		"eu-west-1": {codes.TopicMissing, []string{`"s"`, `region "eu-west-1"`, "--region"}},
		"eu-west-2": {codes.AccessDenied, []string{`region "eu-west-2"`, "kinesis:DescribeStreamSummary"}},
		"eu-wset-1": {codes.SourceFailure, []string{`region "eu-wset-1"`, "kinesis.eu-wset-1.amazonaws.invalid", "--region"}},
	} {
		calls := 0
		api := awskinesis.New(awskinesis.Options{
			Region: region, EndpointResolverV2: world, HTTPClient: counted{dead, &calls}, Retryer: aws.NopRetryer{},
			Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{AccessKeyID: kinesistest.AccessKey, SecretAccessKey: kinesistest.SecretKey}, nil
			}),
		})
		_, err := newStream(t, kinesis.Config{Client: api, Stream: "s"}).Info(t.Context())
		if !codes.Has(err, want.code) || calls != 1 {
			t.Errorf("%s: %d calls, %v", region, calls, err)
			continue
		}
		for _, w := range want.words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q is missing: %v", region, w, err)
			}
		}
		if strings.Contains(err.Error(), kinesistest.SecretKey) {
			t.Errorf("%s: the secret is shown", region)
		}
	}
}

type counted struct {
	client *http.Client
	calls  *int
}

func (c counted) Do(req *http.Request) (*http.Response, error) {
	*c.calls++
	return c.client.Do(req)
}

// A region that is no part of a host's name is refused before anything is asked.
func TestRegionsThatAreNone(t *testing.T) {
	t.Parallel()
	for _, region := range []string{"eu west", "eu-west-1.evil.example/", "EU", "-", strings.Repeat("a", 64)} {
		if _, err := kinesis.Connect(t.Context(), kinesis.Connection{Region: region}); !codes.Has(err, codes.ConfigInvalid) || !strings.Contains(err.Error(), "eu-west-1") {
			t.Errorf("%q: %v", region, err)
		}
	}
}

// What the SDK has to say goes to the logger, or nowhere; never to standard error by itself.
func TestTheSDKSpeaksThroughTheLogger(t *testing.T) {
	t.Parallel()
	var told bytes.Buffer
	for _, l := range []*slog.Logger{nil, slog.New(slog.NewTextHandler(&told, nil))} {
		api, err := kinesis.Connect(t.Context(), kinesis.Connection{Region: kinesistest.Region, Logger: l})
		if err != nil {
			t.Fatal(err)
		}
		api.Options().Logger.Logf("WARN", "falling back to %s", "something")
		api.Options().Logger.Logf("DEBUG", "not %s", "told")
	}
	if out := told.String(); strings.Count(out, "the AWS SDK says: falling back to something") != 1 || strings.Contains(out, "not told") {
		t.Errorf("%q", out)
	}
}

// A listing that is never answered ends with words after StartTimeout, whoever asks: a command would say nothing for ever.
func TestAListingIsNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &kinesistest.Scripted{Answer: func(string, map[string]any) kinesistest.Answer {
			return kinesistest.Answer{Type: "ServiceUnavailableException"}
		}}
		began := time.Now()
		_, err := scripted(t, s, nil).Shards(context.Background())
		var api smithy.APIError
		if !codes.Has(err, codes.SourceFailure) || time.Since(began) != 10*time.Second || !errors.As(err, &api) {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}
