// Package chclient speaks ClickHouse's native protocol: one connection, one query at a time, blocks of columns in and out.
//
//	conn, err := chclient.Connect(ctx, chclient.Config{Address: "127.0.0.1:9000"})
//	err = conn.Exec(ctx, "CREATE TABLE …")
//	err = conn.Query(ctx, "SELECT a, b FROM t", func(row []any) error { … })
//	err = conn.Insert(ctx, "INSERT INTO t (a, b) VALUES", chclient.Block{Rows: n, Columns: []chclient.Column{…}})
//
// It speaks revision 54401 (2018), which every server since takes; the server answers in the client's revision. Compression is not part of it.
//
// Every call is bounded by Config.Timeout and by its context. After an error that is not an Exception, and after any error of Insert, the connection is
// of no use any more: whether the server has done what it was asked is unknown, and Broken says so.
package chclient
