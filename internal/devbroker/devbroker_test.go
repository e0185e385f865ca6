package devbroker_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/internal/devbroker/child"
)

func TestMain(m *testing.M) {
	child.Main()
	os.Exit(m.Run())
}

func start(t *testing.T, cfg devbroker.Config) *devbroker.Broker {
	t.Helper()
	b, err := devbroker.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func client(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addr), kgo.DisableClientMetrics())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func produce(t *testing.T, addr string, from, to int) {
	t.Helper()
	cl := client(t, addr)
	for i := from; i < to; i++ {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "ticks", Key: []byte("k"), Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// wantRecords reads the topic from its start and expects the records 0…n-1, whatever partition they are in.
func wantRecords(t *testing.T, addr string, n int) {
	t.Helper()
	cl := client(t, addr, kgo.ConsumeTopics("ticks"))
	for i := 0; i < n; {
		fetches := cl.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if want := fmt.Sprint(i); string(r.Value) != want {
				t.Errorf("record %d is %q", i, r.Value)
			}
			i++
		})
	}
	ends, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), "ticks")
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	ends.Each(func(o kadm.ListedOffset) { total += o.Offset })
	if total != int64(n) {
		t.Fatalf("the topic holds %d records, want %d", total, n)
	}
}

func wantCode(t *testing.T, err error, code *codes.Code, parts ...string) {
	t.Helper()
	if !codes.Has(err, code) {
		t.Fatalf("got %v, want %s", err, code.Name)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

func TestListensOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	host, _, err := net.SplitHostPort(b.Addr())
	if err != nil || host != "127.0.0.1" {
		t.Fatalf("listens on %s, %v", b.Addr(), err)
	}
	brokers, err := kadm.NewClient(client(t, b.Addr())).ListBrokers(t.Context())
	if err != nil || len(brokers) != 1 || brokers[0].Host != "127.0.0.1" {
		t.Fatalf("advertises %+v, %v", brokers, err)
	}
}

func TestMakesTopicsAndKeepsThoseThatExist(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := start(t, devbroker.Config{DataDir: dir, Partitions: 3, Topics: []string{"ticks"}})
	produce(t, b.Addr(), 0, 5)
	b.Close()
	b = start(t, devbroker.Config{DataDir: dir, Partitions: 7, Topics: []string{"ticks", "more"}})
	topics, err := kadm.NewClient(client(t, b.Addr())).ListTopics(t.Context(), "ticks", "more")
	if err != nil || len(topics["ticks"].Partitions) != 3 || len(topics["more"].Partitions) != 7 {
		t.Fatalf("got %v, %v", topics, err)
	}
	wantRecords(t, b.Addr(), 5)
}

func TestDoesNotMakeATopicThatAClientOnlyAsksFor(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	asking := client(t, b.Addr(), kgo.AllowAutoTopicCreation())
	if _, err := kadm.NewClient(asking).ListTopics(t.Context(), "tipo"); err != nil {
		t.Fatal(err)
	}
	topics, err := kadm.NewClient(client(t, b.Addr())).ListTopics(t.Context())
	if err != nil || len(topics) != 0 {
		t.Fatalf("got %v, %v", topics.Names(), err)
	}
}

// A kill loses nothing that was acknowledged, and the next process may have the folder at once.
func TestSurvivesAKillWithItsData(t *testing.T) {
	t.Parallel()
	cfg := devbroker.Config{DataDir: t.TempDir(), Partitions: 1, Topics: []string{"ticks"}}
	total := 0
	for range 3 {
		p := child.Start(t, cfg)
		produce(t, p.Addr(), total, total+20)
		total += 20
		p.Kill()
	}
	wantRecords(t, child.Start(t, cfg).Addr(), total)
}

// What was in a transaction that a kill left open is never seen, and what its producer commits afterwards is, however often the broker is killed.
func TestTransactionsThatAKillLeavesOpen(t *testing.T) {
	t.Parallel()
	cfg := devbroker.Config{DataDir: t.TempDir(), Partitions: 1, Topics: []string{"ticks"}}
	var want []string
	for i := range 3 {
		p := child.Start(t, cfg)
		want = append(want, fmt.Sprint("committed ", i))
		transaction(t, p.Addr(), want[i], kgo.TryCommit)
		wantCommitted(t, p.Addr(), want)
		cl := client(t, p.Addr(), kgo.TransactionalID("writer"))
		begin(t, cl, fmt.Sprint("left open ", i))
		p.Kill()
	}
	p := child.Start(t, cfg)
	wantCommitted(t, p.Addr(), want)
	p.Stop()
	p = child.Start(t, cfg)
	transaction(t, p.Addr(), "aborted", kgo.TryAbort)
	wantCommitted(t, p.Addr(), want)
}

// begin begins a transaction with one record.
func begin(t *testing.T, cl *kgo.Client, value string) {
	t.Helper()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "ticks", Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func transaction(t *testing.T, addr, value string, end kgo.TransactionEndTry) {
	t.Helper()
	cl := client(t, addr, kgo.TransactionalID("writer"))
	begin(t, cl, value)
	if err := cl.EndTransaction(t.Context(), end); err != nil {
		t.Fatal(err)
	}
}

// wantCommitted writes a last record without a transaction, reads as far as that, and expects the committed ones before it.
func wantCommitted(t *testing.T, addr string, want []string) {
	t.Helper()
	last := &kgo.Record{Topic: "ticks", Value: []byte("last")}
	if err := client(t, addr).ProduceSync(t.Context(), last).FirstErr(); err != nil {
		t.Fatal(err)
	}
	cl := client(t, addr, kgo.ConsumeTopics("ticks"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	var got []string
	for end := false; !end; {
		fetches := cl.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if end = end || r.Offset == last.Offset; string(r.Value) != "last" {
				got = append(got, string(r.Value))
			}
		})
	}
	if !slices.Equal(got, want) {
		t.Errorf("committed are %q, want %q", got, want)
	}
}

func TestASecondBrokerOnTheFolderIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := devbroker.Config{DataDir: dir, Partitions: 1, Topics: []string{"ticks"}}
	p := child.Start(t, cfg)
	_, err := devbroker.Start(cfg)
	wantCode(t, err, codes.StoreUnavailable, dir, "in use by another broker")
	produce(t, p.Addr(), 0, 3)
	p.Stop()
	b := start(t, cfg)
	wantRecords(t, b.Addr(), 3)
	if _, err := child.TryStart(t, cfg); err == nil || !strings.Contains(err.Error(), "in use by another broker") {
		t.Fatalf("got %v", err)
	}
}

func TestAPortInUseIsNamed(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	port, dir := ln.Addr().(*net.TCPAddr).Port, t.TempDir()
	_, err = devbroker.Start(devbroker.Config{Port: port, DataDir: dir})
	wantCode(t, err, codes.PortInUse, fmt.Sprint(port))
	_, err = devbroker.Start(devbroker.Config{Port: 1 << 20})
	wantCode(t, err, codes.PortInUse, fmt.Sprint(1<<20))
	start(t, devbroker.Config{DataDir: dir}) // the failed start gave the folder back
}

func TestAFolderThatCannotBeUsedIsNamed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := devbroker.Start(devbroker.Config{DataDir: file})
	wantCode(t, err, codes.StoreUnavailable, file)

	damaged := t.TempDir()
	if err := os.WriteFile(filepath.Join(damaged, "meta.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = devbroker.Start(devbroker.Config{DataDir: damaged})
	wantCode(t, err, codes.StoreUnavailable, damaged, "meta.json")
}

func TestCloseStopsAnsweringAndMayBeCalledAgain(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	b.Close()
	b.Close()
	d := net.Dialer{}
	if conn, err := d.DialContext(context.Background(), "tcp", b.Addr()); err == nil {
		conn.Close()
		t.Fatal("still listening")
	}
}
