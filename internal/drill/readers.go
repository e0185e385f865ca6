package drill

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/internal/kafkaclient"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/clickhouse"
)

// LineFiles reads the JSON Lines that a folder holds of a run.
func LineFiles(folder string) func(ctx context.Context, run string, fn func(line []byte) error) error {
	return func(_ context.Context, run string, fn func(line []byte) error) error {
		return eachFile(folder, run, ".jsonl", func(_ string, in io.Reader) error {
			lines := bufio.NewScanner(in)
			for lines.Scan() {
				if err := fn(lines.Bytes()); err != nil {
					return err
				}
			}
			return lines.Err()
		})
	}
}

// TableFiles reads the CSV that a folder holds of a run.
func TableFiles(folder string, outputs []string) func(ctx context.Context, run string, fn func(line []byte) error) error {
	return func(_ context.Context, run string, fn func(line []byte) error) error {
		text := sinks.NewJSON(sinks.Target{RunID: run, Outputs: outputs})
		return eachFile(folder, run, ".csv", func(path string, in io.Reader) error {
			all, err := csv.NewReader(in).ReadAll()
			if err != nil || len(all) == 0 {
				return errors.Join(err, fmt.Errorf("%s has %d lines", path, len(all)))
			}
			if head := append([]string{"partition", "row", "time", "event_id", "key"}, outputs...); strings.Join(all[0], ",") != strings.Join(head, ",") {
				return fmt.Errorf("%s begins with %v", path, all[0])
			}
			for _, cells := range all[1:] {
				line, err := cellsOf(text, cells)
				if err == nil {
					err = fn(line)
				}
				if err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
			}
			return nil
		})
	}
}

// cellsOf is a line of CSV as sinks.JSON writes the row.
func cellsOf(text *sinks.JSON, cells []string) ([]byte, error) {
	partition, err := strconv.ParseInt(cells[0], 10, 32)
	number, err2 := strconv.ParseInt(cells[1], 10, 64)
	at, err3 := record.ParseTime([]byte(cells[2]))
	if err := errors.Join(err, err2, err3); err != nil {
		return nil, err
	}
	row := partitions.Row{Time: at, ID: []byte(cells[3]), Key: []byte(cells[4])}
	for _, cell := range cells[5:] {
		v := operators.Gap
		if cell != "" {
			f, err := strconv.ParseFloat(cell, 64)
			if err != nil {
				return nil, err
			}
			v = operators.Number(f)
		}
		row.Values = append(row.Values, v)
	}
	return text.Append(nil, int32(partition), number, &row), nil
}

// eachFile gives the files of a run that have their names.
func eachFile(folder, run, extension string, fn func(path string, in io.Reader) error) error {
	paths, err := filepath.Glob(filepath.Join(folder, run, "*"+extension))
	if err != nil {
		return err
	}
	for _, path := range paths {
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		if err := errors.Join(fn(path, in), in.Close()); err != nil {
			return err
		}
	}
	return nil
}

// MakeTopic makes a topic for results.
func MakeTopic(ctx context.Context, brokers, topic string, security kafkaclient.Security) error {
	s, err := kafkaclient.Config{Brokers: strings.Split(brokers, ","), Topic: topic, Security: security}.Open()
	if err != nil {
		return err
	}
	defer s.Client.Close()
	made, err := kadm.NewClient(s.Client).CreateTopic(ctx, 2, 1, nil, topic)
	if err = errors.Join(err, made.Err); err != nil {
		return codes.New(codes.BrokerUnreachable, "the topic %s cannot be made: %w", topic, err)
	}
	return nil
}

// Topic reads the committed records of a topic, from its start to the end that it has when the reading begins.
func Topic(brokers, topic string, security kafkaclient.Security) func(ctx context.Context, run string, fn func(line []byte) error) error {
	return func(ctx context.Context, run string, fn func(line []byte) error) error {
		s, err := kafkaclient.Config{Brokers: strings.Split(brokers, ","), Topic: topic, Security: security}.Open(
			kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
		if err != nil {
			return err
		}
		defer s.Client.Close()
		ends, err := kadm.NewClient(s.Client).ListCommittedOffsets(ctx, topic)
		if err == nil {
			err = ends.Error()
		}
		if err != nil {
			return err
		}
		left := map[int32]int64{}
		ends.Each(func(o kadm.ListedOffset) {
			if o.Offset > 0 {
				left[o.Partition] = o.Offset
			}
		})
		of := []byte(`,"run":` + string(record.AppendString(nil, run)) + `,`)
		for len(left) > 0 {
			fetches := s.Client.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				return err
			}
			for _, r := range fetches.Records() {
				end, reading := left[r.Partition]
				if reading && r.Offset >= end-1 {
					delete(left, r.Partition)
				}
				if reading && r.Offset < end && !r.Attrs.IsControl() && strings.Contains(string(r.Value), string(of)) {
					if err := fn(r.Value); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}
}

// Table reads a table of results.
func Table(url, table string, outputs []string) func(ctx context.Context, run string, fn func(line []byte) error) error {
	return func(ctx context.Context, run string, fn func(line []byte) error) error {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return codes.New(codes.SinkUnavailable, "the database of the results: %s", "it does not answer") // the cause would show the URL
		}
		defer conn.Close(context.WithoutCancel(ctx))
		text := sinks.NewJSON(sinks.Target{RunID: run, Outputs: outputs})
		columns := `partition, row_number, event_nanos, event_id, event_key`
		for _, name := range outputs {
			columns += `, ` + pgx.Identifier{name}.Sanitize()
		}
		found, err := conn.Query(ctx, `SELECT `+columns+` FROM `+pgx.Identifier{table}.Sanitize()+` WHERE run_id = $1`, run)
		if err != nil {
			return err
		}
		defer found.Close()
		for found.Next() {
			var partition int32
			var number, nanos int64
			var id, key string
			values := make([]*float64, len(outputs))
			into := []any{&partition, &number, &nanos, &id, &key}
			for i := range values {
				into = append(into, &values[i])
			}
			if err := found.Scan(into...); err != nil {
				return err
			}
			row := partitions.Row{Time: record.EventTime(nanos), ID: []byte(id), Key: []byte(key)}
			for _, v := range values {
				if v == nil {
					row.Values = append(row.Values, operators.Gap)
					continue
				}
				row.Values = append(row.Values, operators.Number(*v))
			}
			if err := fn(text.Append(nil, partition, number, &row)); err != nil {
				return err
			}
		}
		return found.Err()
	}
}

// View reads a view of ClickHouse, as a user of it does.
func View(sink *clickhouse.Sink, outputs []string) func(ctx context.Context, run string, fn func(line []byte) error) error {
	return func(ctx context.Context, run string, fn func(line []byte) error) error {
		text := sinks.NewJSON(sinks.Target{RunID: run, Outputs: outputs})
		return sink.Read(ctx, run, outputs, func(partition int32, number int64, row *partitions.Row) error {
			return fn(text.Append(nil, partition, number, row))
		})
	}
}
