package clickhouse

import (
	"context"
	"net"

	"github.com/weirstream/weir/internal/chclient"
)

// Dial sets how a sink connects, for tests that cut connections.
func Dial(s *Sink, dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	s.connect.Dial = dial
}

// Fail is the code that a sink gives to what the server tells.
func Fail(s *Sink, code int32, message string) error {
	return s.fail(context.Background(), "writing rows", &chclient.Exception{Code: code, Message: message})
}
