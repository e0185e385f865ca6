package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/server"
)

const (
	// maxAnswer bounds what is read of a process, maxEvent one line of its tap.
	maxAnswer = 64 << 20
	maxEvent  = 1 << 20
	// askTimeout bounds a question; a tap has none.
	askTimeout = 15 * time.Second
)

// urlFlags name a process that listens.
type urlFlags struct{ url, token, ca string }

func (o *urlFlags) addURL(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.url, "url", "", "ask the process of the run, at the address that 'weir run --listen' says: http://127.0.0.1:8787")
	f.StringVar(&o.token, "token", "", "its bearer token, as a reference: env:NAME or file:PATH")
	f.StringVar(&o.ca, "url-ca", "", "file with the certificates, in PEM, of the authority that signed the process' (default: those that the system trusts)")
}

// request prepares a question. A token goes over TLS, or to this machine.
func (o *urlFlags) request(ctx context.Context, path string) (*http.Request, error) {
	u, err := url.Parse(o.url)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return nil, usagef("--url is an address such as http://127.0.0.1:8787 or https://HOST:PORT, without a user or a query")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(u.String(), "/")+path, nil)
	if err != nil {
		return nil, usagef("--url cannot be asked")
	}
	if o.token == "" {
		return req, nil
	}
	if !strings.HasPrefix(o.token, "env:") && !strings.HasPrefix(o.token, "file:") {
		return nil, usagef("--token is a reference, env:NAME or file:PATH: a token on the command line could be seen by others")
	}
	if host := u.Hostname(); u.Scheme == "http" && host != "localhost" && host != "127.0.0.1" && host != "::1" {
		return nil, codes.New(codes.ConfigInvalid, "the token is not sent over http to %s, where others could read it; use https", host)
	}
	token, err := dereference(o.token)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	return req, nil
}

func (o *urlFlags) client() (*http.Client, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy, t.ResponseHeaderTimeout = nil, askTimeout
	if o.ca != "" {
		pem, err := readFile("the authority of --url-ca", o.ca, secretLimit)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, codes.New(codes.ConfigInvalid, "--url-ca %s holds no certificate in PEM", o.ca)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// get asks, and gives the body of a good answer.
func (o *urlFlags) get(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := o.request(ctx, path)
	if err != nil {
		return nil, err
	}
	client, err := o.client()
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var inner *url.Error
		if errors.As(err, &inner) {
			err = inner.Err
		}
		return nil, codes.New(codes.ProcessUnreachable, "%s: %w", req.URL.Host, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	return nil, refusal(resp)
}

// refusal is what a process said instead of an answer.
func refusal(resp *http.Response) error {
	var p struct{ Code, Detail string }
	_ = json.NewDecoder(io.LimitReader(resp.Body, maxEvent)).Decode(&p) // what is no problem document has neither
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		return codes.New(codes.AccessDenied, "the process wants a token that it knows: --token env:NAME or file:PATH")
	case http.StatusForbidden:
		return codes.New(codes.AccessDenied, "the process refuses: %s", p.Detail)
	}
	return codes.New(codes.RequestInvalid, "the process answers %d %s: %s", resp.StatusCode, p.Code, p.Detail)
}

// tapOptions are the flags of weir tap.
type tapOptions struct {
	urlFlags
	kinds     []string
	partition int32
	rate, n   int
}

func (a *app) tapCommand() *cobra.Command {
	var o tapOptions
	cmd := &cobra.Command{
		Use: "tap", Short: "Watch records, results and what is set aside as they come",
		Long: "Asks the process of a run, which has to be started with --listen and --tap. Records are shown as they are read; results and what is set aside as\n" +
			"they are committed. It is a sample: what exceeds --rate is left out, and how much is said on stderr. Control characters in data are escaped.",
		Example: "  weir tap --url http://127.0.0.1:8787\n  weir tap --url http://127.0.0.1:8787 --kinds late,quarantined --json\n  weir tap --url http://127.0.0.1:8787 -n 10",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.n < 0 || cmd.Flags().Changed("partition") && o.partition < 0 {
				return usagef("--number and --partition must not be negative")
			}
			return a.tapFrom(cmd.Context(), o)
		},
	}
	o.addURL(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&o.kinds, "kinds", nil, "kinds of events: record, output, late, quarantined (default: all)")
	f.Int32Var(&o.partition, "partition", -1, "of this partition alone")
	f.IntVar(&o.rate, "rate", 100, "events a second at most, up to 1000")
	f.IntVarP(&o.n, "number", "n", 0, "stop after so many events (default: never)")
	return cmd
}

func (a *app) tapFrom(ctx context.Context, o tapOptions) error {
	if o.url == "" {
		return usagef("--url is missing: the process to ask, as `weir run --listen` says")
	}
	q := url.Values{"rate": {strconv.Itoa(o.rate)}}
	if len(o.kinds) > 0 {
		q.Set("kinds", strings.Join(o.kinds, ","))
	}
	if o.partition >= 0 {
		q.Set("partition", strconv.Itoa(int(o.partition)))
	}
	body, err := o.get(ctx, "/v1/tap?"+q.Encode())
	if err != nil {
		return err
	}
	defer body.Close()
	scan := bufio.NewScanner(body)
	scan.Buffer(nil, maxEvent)
	kind, shown := "", 0
	for scan.Scan() {
		line := scan.Text()
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			kind = name
		}
		data, ok := strings.CutPrefix(line, "data: ")
		switch {
		case !ok:
		case kind == "left-out":
			a.leftOut(data)
		default:
			if err := a.showEvent(data); err != nil {
				return err
			}
			if shown++; shown == o.n {
				return nil
			}
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return codes.New(codes.ProcessUnreachable, "the process has ended the stream: it stops, or has gone")
}

func (a *app) leftOut(data string) {
	var left struct{ Events int64 }
	if json.Unmarshal([]byte(data), &left) == nil && left.Events > 0 {
		a.notice("weir: left out, more than --rate allows: %s\n", count(left.Events, "event"))
	}
}

// showEvent prints one event: the document itself with --json, a line otherwise.
func (a *app) showEvent(data string) error {
	if a.json {
		a.printf("%s\n", data)
		return nil
	}
	var e server.TapEvent
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		return codes.New(codes.RequestInvalid, "the process sends what is no event: %w", err)
	}
	parts := []string{fmt.Sprintf("%-11s partition %d", e.Kind, e.Partition)}
	for _, f := range []struct{ name, text string }{
		{"at", e.Position}, {"time", e.EventTime}, {"id", e.EventID}, {"key", tapText(e.Key)}, {"reason", e.Reason}, {"detail", e.Detail}, {"value", tapText(e.Value)}, {"results", results(e.Outputs)},
	} {
		if f.text != "" {
			parts = append(parts, f.name+" "+f.text)
		}
	}
	a.printf("%s\n", cell(printable(strings.Join(parts, "  "))))
	return nil
}

func tapText(t *server.TapText) string {
	switch {
	case t == nil:
		return ""
	case t.Base64 != "":
		return fmt.Sprintf("base64:%s (%d bytes)", t.Base64, t.Bytes)
	case len(t.Text) < t.Bytes:
		return fmt.Sprintf("%s… (%d bytes)", t.Text, t.Bytes)
	}
	return t.Text
}

func results(values []*float64) string {
	if values == nil {
		return ""
	}
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = "null"
		if v != nil {
			texts[i] = strconv.FormatFloat(*v, 'g', -1, 64)
		}
	}
	return strings.Join(texts, ", ")
}
