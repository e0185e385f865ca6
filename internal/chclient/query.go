package chclient

import (
	"context"
	"fmt"
	"net"
)

// The kinds of packets.
const (
	clientQuery, clientData = 1, 2

	serverHello, serverData, serverException, serverProgress, serverPong, serverEnd, serverProfile, serverTotals, serverExtremes = 0, 1, 2, 3, 4, 5, 6, 7, 8
)

// Column of a block. Data is the column's bytes as the type wants them; see the Append functions.
type Column struct {
	Name, Type string
	Data       []byte
	// Nulls are the bytes of a Nullable type that say which values are null, 1, or not, 0. Data has a value for each of them all the same.
	Nulls []byte
}

// Block is some rows by columns, all of which have that many values.
type Block struct {
	Rows    int
	Columns []Column
}

// Exec runs a statement that answers nothing, or whose answer does not matter.
func (c *Conn) Exec(ctx context.Context, query string) error {
	return c.Query(ctx, query, func([]any) error { return nil })
}

// Query runs a query and calls fn with each row, which is valid during the call. Integers and dates come as int64 or, from unsigned types, uint64, floats as
// float64, strings as string, arrays as []any and null as nil. An error of fn ends the query, and the connection with it.
func (c *Conn) Query(ctx context.Context, query string, fn func(row []any) error) error {
	return c.bounded(ctx, func() error {
		if err := c.send(query); err != nil {
			return err
		}
		return c.answers(func() (bool, error) { return false, c.in.block(fn) })
	})
}

// Insert runs an INSERT and sends it blocks: they stand when it returns nil. A block alone, of at most a million rows, stands whole or not at all in a table
// without partitions. Its memory belongs to the caller again when it returns.
func (c *Conn) Insert(ctx context.Context, query string, blocks ...Block) error {
	err := c.bounded(ctx, func() error {
		if err := c.send(query); err != nil {
			return err
		}
		// The server tells the columns that it waits for.
		if err := c.answers(func() (bool, error) { return true, c.in.block(func([]any) error { return nil }) }); err != nil {
			return err
		}
		err := c.sendBlocks(blocks)
		if told := c.answers(func() (bool, error) { return false, ErrProtocol }); told != nil || err == nil {
			return told // a server that refuses a block hangs up, and its reason says more than that
		}
		return err
	})
	if err != nil {
		c.broken = true
	}
	return err
}

func (c *Conn) sendBlocks(blocks []Block) error {
	for _, b := range blocks {
		if err := c.sendBlock(b); err != nil {
			return err
		}
	}
	return c.write(appendBlockHeader(c.out[:0], 0, 0))
}

// sendBlock writes the columns from where they are, without copying them.
func (c *Conn) sendBlock(block Block) error {
	head := appendBlockHeader(c.out[:0], len(block.Columns), block.Rows)
	var buffers net.Buffers
	from := 0
	for _, col := range block.Columns {
		head = AppendString(head, []byte(col.Name))
		head = AppendString(head, []byte(col.Type))
		// What was cut off head before keeps its bytes if head moves.
		buffers = append(buffers, head[from:len(head):len(head)])
		from = len(head)
		if col.Nulls != nil {
			buffers = append(buffers, col.Nulls)
		}
		buffers = append(buffers, col.Data)
	}
	c.out = head[:0]
	_, err := buffers.WriteTo(c.conn)
	return err
}

// appendBlockHeader begins a packet of data: kind, name of a temporary table, information on the block, its size.
func appendBlockHeader(b []byte, columns, rows int) []byte {
	b = append(b, clientData, 0, 1, 0, 2, 0xff, 0xff, 0xff, 0xff, 0)
	b = appendUvarint(b, uint64(columns))
	return appendUvarint(b, uint64(rows))
}

// send sends a query, to be run to its end, without settings and compression, and with no data of its own.
//
//	1 │ query id │ client information │ settings, "" │ stage │ compression │ query
func (c *Conn) send(query string) error {
	b := append(c.out[:0], clientQuery, 0)
	b = append(b, 1, 0, 0) // an initial query, of nobody else, without an id
	b = AppendString(b, []byte("0.0.0.0:0"))
	b = append(b, 1, 0, 0) // TCP, user and host are nobody's business
	b = AppendString(b, []byte("weir"))
	b = append(b, 1, 0)
	b = appendUvarint(b, revision)
	b = append(b, 0, 0) // quota key, patch
	b = append(b, 0, 2, 0)
	b = AppendString(b, []byte(query))
	b = appendBlockHeader(b, 0, 0)
	return c.write(b)
}

// answers reads packets up to the end of the query, or until data, which is called for each block, says that this is enough.
func (c *Conn) answers(data func() (enough bool, err error)) error {
	for {
		kind := c.in.uvarint()
		if c.in.err != nil {
			return c.in.err
		}
		switch kind {
		case serverData, serverTotals, serverExtremes:
			enough, err := data()
			if c.in.err != nil {
				err = c.in.err
			}
			if err != nil || enough {
				return err
			}
		case serverException:
			return c.exception()
		case serverProgress:
			c.in.uvarint()
			c.in.uvarint()
			c.in.uvarint()
		case serverProfile:
			c.in.uvarint()
			c.in.uvarint()
			c.in.uvarint()
			c.in.fixed(1)
			c.in.uvarint()
			c.in.fixed(1)
		case serverPong:
		case serverEnd:
			return nil
		default:
			return fmt.Errorf("%w: packet %d", ErrProtocol, kind)
		}
	}
}
