// Package sim runs the real engine on virtual time with what a seed lets go wrong, and shows the history to every checker of package
// invariant.
//
//	scenario := sim.Draw(seed)                     // the flow, the log, the owners, the faults
//	truth, err := scenario.Truth()                 // what an undisturbed reading gives
//	synctest.Test(t, func(t *testing.T) {
//		history := sim.Play(scenario, truth)       // actors.Run, several at once, over one store
//	})
//	invariant.Check(history.Entries(), invariant.All(truth, scenario.Limits(truth))...)
//
// # The world
//
//	process p0.0 ── actors.Run ─┬─ client ──┬─ network ──▶ server ── controltest.Memory     one store, one clock, one order of effects
//	process p1.0 ── actors.Run ─┤  source ──│─────────────▶ sourcetest.Log                 one log, read by each in its own way
//	process p0.1 …              └─ blobs ───┴─ network ──▶ checkpointtest.Memory           the blobs of checkpoints
//
// A process has a gate in everything that it does: in every call that leaves it, in every answer that comes back, and in every hook of the
// engine. A stopped process stands at its gate; what it has sent goes on without it. A dead one gets no answers, and what it has sent may
// still arrive. A slot starts the next process, under a new owner, when one has ended. After a while no more faults begin, and one last
// process, which nothing disturbs, finishes what is left.
//
// # What a seed determines
//
// The scenario is a function of the seed: the log, the settings, the strikes at the n-th passing of a failpoint, the fate of the n-th call of
// an operation by a process, the timetable. The engine runs on several threads, so that two runs of one seed may pass their
// failpoints in another order at the same moment of virtual time and diverge from there. The checkers know nothing of timing, so that a
// violation is one in whatever order it came; a seed that has failed once is kept in testdata/seeds.txt and is run always.
//
// What a stopped process cannot show here: timers inside the engine fire while it is stopped, and what hangs on nothing else goes on. The
// drill stops real processes.
package sim
