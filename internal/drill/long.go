package drill

import "context"

var longFlow []byte

func (d *drill) long(ctx context.Context) error { return nil }
