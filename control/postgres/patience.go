package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// grace is how long a statement that was sent is waited for after its context has ended. It is usually over in a millisecond, and an answer
// is worth more than an unknown.
const grace = 2 * time.Second

// patient breaks what is under way on a connection that long after ctx has ended, until end is called. Statements are given a context without an
// end: the driver starts a goroutine for each one whose context can end, which costs more than this.
func patient(ctx context.Context, conn *pgx.Conn, grace time.Duration) (end func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	var mu sync.Mutex
	var timer *time.Timer
	var over, broken bool
	breaks := func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			broken = true
			_ = conn.PgConn().Conn().SetDeadline(time.Unix(1, 0)) // of a connection that is closed already
		}
	}
	stop := context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			timer = time.AfterFunc(grace, breaks)
		}
	})
	return func() {
		stop()
		mu.Lock()
		defer mu.Unlock()
		over = true
		if timer != nil {
			timer.Stop()
		}
		if broken && !conn.IsClosed() { // its answer came just then; nobody else may have a connection with that deadline
			ended, cancel := context.WithCancel(context.WithoutCancel(ctx))
			cancel()
			_ = conn.Close(ended) // it is given up
		}
	}
}
