package chclient_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/chclient"
	"github.com/weirstream/weir/internal/chtest"
	"github.com/weirstream/weir/secret"
)

func TestMain(m *testing.M) { os.Exit(chtest.Run(m)) }

// TestValues: every type that is written or read here comes back as it was given.
func TestValues(t *testing.T) {
	t.Parallel()
	conn := chtest.Database(t).Connect(t)
	if err := conn.Exec(t.Context(), "CREATE TABLE t (s String, i Int32, l Int64, u UInt64, d DateTime, f Nullable(Float64)) ENGINE = Memory"); err != nil {
		t.Fatal(err)
	}
	texts := []string{"", "quote ' and \\", "a\x00b\xff", strings.Repeat("long ", 9999)}
	cols := []chclient.Column{{Name: "s", Type: "String"}, {Name: "i", Type: "Int32"}, {Name: "l", Type: "Int64"}, {Name: "u", Type: "UInt64"}, {Name: "d", Type: "DateTime"}, {Name: "f", Type: "Nullable(Float64)"}}
	for n, text := range texts {
		cols[0].Data = chclient.AppendString(cols[0].Data, []byte(text))
		cols[1].Data = chclient.AppendInt32(cols[1].Data, uint32(-n))
		cols[2].Data = chclient.AppendInt64(cols[2].Data, uint64(math.MinInt64+n))
		cols[3].Data = chclient.AppendInt64(cols[3].Data, math.MaxUint64)
		cols[4].Data = chclient.AppendInt32(cols[4].Data, math.MaxUint32)
		cols[5].Data = chclient.AppendFloat64(cols[5].Data, float64(n)/3)
		cols[5].Nulls = append(cols[5].Nulls, byte(n%2))
	}
	block := chclient.Block{Rows: len(texts), Columns: cols}
	if err := conn.Insert(t.Context(), "INSERT INTO t (s, i, l, u, d, f) VALUES", block, block); err != nil {
		t.Fatal(err)
	}
	n := 0
	err := conn.Query(t.Context(), "SELECT s, i, l, u, d, f, toInt8(-1), toInt16(-2), toUInt8(3), toUInt16(4), toDate(5), NULL, [[1, NULL], []], emptyArrayString() FROM t", func(row []any) error {
		k := n % len(texts)
		want := []any{texts[k], int64(-k), int64(math.MinInt64 + k), uint64(math.MaxUint64), uint64(math.MaxUint32), float64(k) / 3, int64(-1), int64(-2), uint64(3), uint64(4), uint64(5), nil, []any{[]any{uint64(1), nil}, []any{}}, []any{}}
		if k%2 == 1 {
			want[5] = nil
		}
		if got, want := fmt.Sprintf("%#v", row), fmt.Sprintf("%#v", want); got != want {
			t.Errorf("row %d: %.200s\nwant %.200s", n, got, want)
		}
		n++
		return nil
	})
	if err != nil || n != 2*len(texts) {
		t.Errorf("%d rows, %v", n, err)
	}
	var literal string
	if err := conn.Query(t.Context(), "SELECT "+chclient.Quote(texts[1]), func(row []any) error { literal = row[0].(string); return nil }); err != nil || literal != texts[1] {
		t.Errorf("%q, %v", literal, err)
	}
}

// TestManyRows: an answer of many blocks.
func TestManyRows(t *testing.T) {
	t.Parallel()
	var next uint64
	err := chtest.Database(t).Connect(t).Query(t.Context(), "SELECT number, toString(number) FROM system.numbers LIMIT 300000", func(row []any) error {
		if row[0] != next || row[1] != fmt.Sprint(next) {
			return fmt.Errorf("%v where %d should be", row, next)
		}
		next++
		return nil
	})
	if err != nil || next != 300_000 {
		t.Errorf("%d rows, %v", next, err)
	}
}

// TestRefusals: what the server says comes with its code, and the connection goes on, but after an insert.
func TestRefusals(t *testing.T) {
	t.Parallel()
	db := chtest.Database(t)
	conn := db.Connect(t)
	var told *chclient.Exception
	if err := conn.Exec(t.Context(), "SELECT * FROM nowhere"); !errors.As(err, &told) || told.Code != 60 || !strings.Contains(told.Error(), "nowhere") {
		t.Errorf("%v, want code 60", err)
	}
	if err := conn.Exec(t.Context(), "CREATE TABLE t (x Int64) ENGINE = Memory"); err != nil || conn.Broken() {
		t.Fatalf("the connection does not go on: %v", err)
	}
	stop := errors.New("enough")
	if err := db.Connect(t).Query(t.Context(), "SELECT 1", func([]any) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v, want the caller's own error", err)
	}
	if err := conn.Insert(t.Context(), "INSERT INTO t (y) VALUES"); !errors.As(err, &told) || told.Code != 16 || !conn.Broken() {
		t.Errorf("%v, want code 16", err)
	}
	if err := conn.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Error("a broken connection is used again")
	}
	conn = db.Connect(t)
	wrong := chclient.Block{Rows: 1, Columns: []chclient.Column{{Name: "x", Type: "NoSuchType", Data: make([]byte, 1<<20)}}}
	if err := conn.Insert(t.Context(), "INSERT INTO t (x) VALUES", wrong, wrong, wrong); !errors.As(err, &told) || !strings.Contains(told.Message, "NoSuchType") {
		t.Errorf("%v, want what the server says of the type", err)
	}
}

// TestLogins: with and without a password, with TLS, and what comes of the wrong ones.
func TestLogins(t *testing.T) {
	t.Parallel()
	db := chtest.Database(t)
	text, err := os.ReadFile(db.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	secure := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	for name, c := range map[string]struct {
		cfg  chclient.Config
		says string
	}{
		"plain":             {chclient.Config{Address: db.Address}, ""},
		"password":          {chclient.Config{Address: db.Address, User: chtest.Guarded, Password: secret.New(chtest.Password)}, ""},
		"TLS":               {chclient.Config{Address: db.Secure, TLS: secure, User: chtest.Guarded, Password: secret.New(chtest.Password)}, ""},
		"wrong password":    {chclient.Config{Address: db.Address, User: chtest.Guarded, Password: secret.New("x")}, "193"},
		"unknown user":      {chclient.Config{Address: db.Address, User: "nobody"}, "192"},
		"unknown authority": {chclient.Config{Address: db.Secure, TLS: &tls.Config{RootCAs: x509.NewCertPool()}}, "unknown authority"},
		"plain to TLS":      {chclient.Config{Address: db.Secure, ConnectTimeout: 10 * time.Second}, ""},
		"TLS to plain":      {chclient.Config{Address: db.Address, TLS: secure}, ""},
	} {
		conn, err := chclient.Connect(t.Context(), c.cfg)
		if strings.Contains(name, " to ") {
			if err == nil {
				t.Errorf("%s: no error", name)
			}
			continue
		}
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), chtest.Password) {
				t.Errorf("%s: %v, want %q", name, err, c.says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := conn.Exec(t.Context(), "SELECT 1"); err != nil || conn.Server != "18.16.1" && strings.Count(conn.Server, ".") != 2 {
			t.Errorf("%s: server %s, %v", name, conn.Server, err)
		}
		_ = conn.Close()
	}
}

// TestContext: a context that ends while the server is at work ends the call with its own error.
func TestContext(t *testing.T) {
	t.Parallel()
	conn := chtest.Database(t).Connect(t)
	ctx, cancel := context.WithCancel(t.Context())
	rows := 0
	err := conn.Query(ctx, "SELECT number FROM system.numbers", func([]any) error {
		if rows++; rows == 100_000 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || !conn.Broken() {
		t.Errorf("%v after %d rows", err, rows)
	}
}

// script is a server that answers whatever it is told with some bytes, and then hangs up.
func script(t *testing.T, answer []byte) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write(answer)
			_ = conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, conn) // until the client hangs up
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

// hello is what a server of a revision says.
func hello(revision uint64) []byte {
	b := chclient.AppendString([]byte{0}, []byte("ClickHouse"))
	b = append(b, 18, 16)
	for ; revision >= 0x80; revision >>= 7 {
		b = append(b, byte(revision)|0x80)
	}
	b = append(b, byte(revision))
	return append(chclient.AppendString(chclient.AppendString(b, []byte("UTC")), []byte("x")), 1)
}

// TestDamagedAnswers: whatever comes, the client ends with an error.
func TestDamagedAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer []byte
		says   string
	}{
		"nothing":          {nil, "EOF"},
		"another protocol": {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), "native protocol"},
		"old server":       {hello(54_000), "18.4 or later"},
		"half a hello":     {hello(54_401)[:9], "EOF"},
		"long text":        {[]byte{0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, "a text of"},
		"unknown packet":   {append(hello(54_401), 99), "packet 99"},
		"hangs up":         {hello(54_401), "EOF"},
		"unknown type":     {append(hello(54_401), 1, 0, 0, 1, 1, 1, 'x', 4, 'U', 'U', 'I', 'D'), "column of type UUID"},
		"many columns":     {append(hello(54_401), 1, 0, 0, 0xff, 0xff, 0xff, 0x7f, 1), "columns"},
		"many rows":        {append(hello(54_401), 1, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0x7f), "rows"},
		"array backwards":  {append(hello(54_401), 1, 0, 0, 1, 2, 1, 'x', 12, 'A', 'r', 'r', 'a', 'y', '(', 'U', 'I', 'n', 't', '8', ')', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), "array that ends"},
		"unknown field":    {append(hello(54_401), 1, 0, 9), "field 9"},
	} {
		conn, err := chclient.Connect(t.Context(), chclient.Config{Address: script(t, c.answer)})
		if err == nil {
			err = conn.Exec(t.Context(), "SELECT 1")
			_ = conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}
