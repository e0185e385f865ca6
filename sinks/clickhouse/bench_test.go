package clickhouse_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"net"
	"os/exec"
	"testing"

	"github.com/weirstream/weir/internal/chtest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/sinktest"
)

// BenchmarkInsert compares with ClickHouse's own client, which is given the same rows in its binary form for a table of the same kind.
func BenchmarkInsert(b *testing.B) {
	const n = 200_000
	client, err := exec.LookPath("clickhouse-client")
	if err != nil {
		b.Skip("clickhouse-client is not installed")
	}
	db := chtest.Database(b)
	to := sinks.Target{RunID: "r", Outputs: sinktest.Outputs, Partitions: []int32{0}, Token: 1}
	w := open(b, sink(b, db.URL(chtest.Super), nil), to)
	run(b, db, "CREATE TABLE bare AS results_rows")
	host, port, err := net.SplitHostPort(db.Address)
	if err != nil {
		b.Fatal(err)
	}
	insert := []string{"--host", host, "--port", port, "--query", "INSERT INTO " + db.Name + ".bare (run_id, partition, row_number, event_time, event_nanos, event_id, event_key, version, ema12, close) FORMAT RowBinary"}
	rows := sinktest.Rounds(9, n)
	size := 0
	sinktest.Compare(b, 9, n, func(round int) {
		publish(b, w, rows[round])
	}, func(round int) {
		text := rowBinary(b, rows[round])
		size = len(text)
		cmd := exec.Command(client, insert...)
		cmd.Stdin = bytes.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	})
	b.ReportMetric(float64(size)/n, "B/row")
	if got := answer(b, db, "SELECT count() FROM bare"); got != answer(b, db, "SELECT count() FROM results") {
		b.Errorf("the client wrote %s rows", got)
	}
}

// rowBinary are rows as the client reads them.
func rowBinary(b *testing.B, rows sinks.Rows) (out []byte) {
	text := func(s []byte) { out = append(binary.AppendUvarint(out, uint64(len(s))), s...) }
	number := func(n uint64) { out = binary.LittleEndian.AppendUint64(out, n) }
	err := rows.Each(2, nil, func(n int64, row *partitions.Row) error {
		text([]byte("r"))
		out = binary.LittleEndian.AppendUint32(out, 0)
		number(uint64(n))
		out = binary.LittleEndian.AppendUint32(out, uint32(row.Time/1_000_000_000))
		number(uint64(row.Time))
		text(row.ID)
		text(row.Key)
		number(1)
		for _, v := range row.Values {
			out = append(out, 0)
			number(math.Float64bits(v.F))
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return out
}
