package drill

import "context"

func (p *part) restore(ctx context.Context) error { return nil }
