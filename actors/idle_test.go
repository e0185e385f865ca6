package actors

import (
	"testing"
	"time"

	"github.com/weirstream/weir/actors/actortest"
	"github.com/weirstream/weir/actors/shell"
)

// An empty answer counts for a partition only if the source was asked for it all the while: one that we held ourselves in the middle of the Poll is as
// little idle as one that we held before.
func TestOnlyPollsThatAskedCount(t *testing.T) {
	t.Parallel()
	actortest.Run(t, func(k *actortest.Kit) {
		b := newBench(k, 2, func(c *Config) {
			plan := *c.Plan
			plan.IdleAfterPolls = 3
			c.Plan, c.MinFreeDisk = &plan, 1000
		})
		r := b.spawnReader()
		shell.Send(r, toReader(begin{now(b)}))
		k.Settle()
		b.log.AnswerEmpty()
		for _, p := range b.parts {
			actortest.Expect[emptyPoll](p)
		}
		k.Settle() // the next Poll is under way
		shell.Send(r, toReader(disk{now(b), 10}))
		k.Settle()
		b.log.AnswerEmpty()
		for _, p := range b.parts {
			p.ExpectNone(time.Minute)
		}
		shell.Send(r, toReader(disk{now(b), 5000}))
		k.Settle()
		b.log.AnswerEmpty()
		for _, p := range b.parts {
			actortest.Expect[emptyPoll](p)
		}
	})
}
