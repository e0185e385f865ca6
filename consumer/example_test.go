package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/weirstream/weir/consumer"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/sourcetest"
)

// errLocked is a failure that passes.
var errLocked = errors.New("the account is locked")

// book stands for what a consumer does with a record. It has to stand being called twice for one.
func book(_ context.Context, d consumer.Delivery) error {
	fmt.Printf("attempt %d of %s: %s\n", d.Attempt, d.Key, d.Value)
	if string(d.Key) == "carol" {
		return errLocked
	}
	return nil
}

// A consumer of a log: three attempts for each record, the later ones through the end of the log, and what fails for good into the
// quarantine of the journal, where `weir quarantine` finds it. Here the log lies in memory; sources/kafka, sources/kinesis and
// sources/logfile are used in the same way, and sinks/kafka under consumer.NewProducing as a Copier.
func Example() {
	ctx := context.Background()
	source := sourcetest.New(sourcetest.Config{Name: "payments", Bounded: true})
	for _, who := range []string{"alice", "bob", "carol", "alice"} {
		source.Append(0, record.Record{Key: []byte(who), Value: []byte("10 EUR")})
	}
	folder, err := os.MkdirTemp("", "weir-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	store, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(folder, "weir.db")})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	// A copy that comes again goes to the end of the log.
	back := consumer.CopierFunc(func(_ context.Context, r record.Record) error {
		source.Append(0, r)
		return nil
	})

	c, err := consumer.New(consumer.Config{
		Source: source,
		Store:  store,
		RunID:  "payments-1", // whoever holds its lease works; a restart goes on where its journal says
		Handler: func(ctx context.Context, d consumer.Delivery) consumer.Outcome {
			if len(d.Value) == 0 {
				return consumer.Drop("there is no amount") // done, without a second try
			}
			return consumer.Of(book(ctx, d)) // Ack, or Retry
		},
		Middleware:  []consumer.Middleware{consumer.Timeout(10 * time.Second)},
		Order:       consumer.ByKey, // records of one key one after the other; here one at a time anyway
		Concurrency: 1,
		MaxAttempts: 3,
		Retry:       back,
		Quarantine:  true,
		Backoff:     consumer.Backoff{Min: 10 * time.Millisecond, Max: time.Second, Jitter: 0.5},
	})
	if err != nil {
		log.Fatal(err)
	}

	// Run ends with ctx, after draining, or here with the log. The copies are part of the log, so the end comes when they are done too.
	result, err := c.Run(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("next %s; %d done, %d of them given up\n", result.Next[0], result.Counts.Records, result.Counts.Omitted)
	// Output:
	// attempt 1 of alice: 10 EUR
	// attempt 1 of bob: 10 EUR
	// attempt 1 of carol: 10 EUR
	// attempt 1 of alice: 10 EUR
	// attempt 2 of carol: 10 EUR
	// attempt 3 of carol: 10 EUR
	// next 6; 6 done, 1 of them given up
}
