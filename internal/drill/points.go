package drill

import (
	"context"
	"fmt"
	"strings"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/control"
)

// lanes of the points part: runs side by side, so that the waits for expired leases overlap.
const lanes = 4

// points are the failpoints of the engine and the steps of a commit in the store.
func (d *drill) points() []string {
	var all []string
	for _, f := range actors.Failpoints() {
		name := string(f)
		if f == actors.OnMessage {
			name += "@1" // not before the lease is held
		}
		all = append(all, name)
	}
	steps := []string{"begin", "locked", "commit", "committed"}
	if d.kind == control.StoreSQLite {
		steps = []string{"begin", "compare and set", "commit", "committed"}
	}
	for _, s := range steps {
		all = append(all, "store:"+s+"@1") // within a commit
	}
	return all
}

// failpointOf is the name of a point without its epoch.
func failpointOf(point string) string {
	name, _, _ := strings.Cut(point, "@")
	return name
}

// lane kills one owner after the other, each at another point, and lets the last one finish.
func (p *part) lane(ctx context.Context, points []string) error {
	t, err := p.newTopic(ctx, p.name, goldenPartitions)
	if err != nil {
		return err
	}
	defer t.close()
	p.on(t)
	each := goldenTimes / (len(points) + 1)
	for i, point := range points {
		owner, err := p.weir(fmt.Sprintf("owner%d", i+1), options{points: point + "=kill", standby: true})
		if err != nil {
			return err
		}
		if err := t.publish(ctx, each); err != nil {
			return err
		}
		if _, err := p.owned(ctx, owner, control.FenceToken(i+1), p.ttl+patience); err != nil && owner.running() {
			return err
		}
		err = p.fires(ctx, owner, failpointOf(point), "kill")
		p.promise(err == nil && owner.code() == -1, "SIGKILL at "+point+" ends the owner there", "%s; %s", owner.how(), orOK(err))
		if err != nil {
			return err
		}
	}
	last, err := p.weir("last", options{standby: true})
	if err != nil {
		return err
	}
	if err := t.publish(ctx, goldenTimes-each*len(points)); err != nil {
		return err
	}
	return p.golden(ctx, last, control.FenceToken(len(points)+1))
}
