package drill

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/control"
)

const (
	// apartMembers work side by side, and one more while it has its mishap or joins before another leaves.
	apartMembers = 3
	// apartEpoch is the time between commits.
	apartEpoch = 100 * time.Millisecond
	// leaveWithin is how long a daemon may take to end when it is asked to, less the grace.
	leaveWithin = 9 * time.Second
	// calmTime is how long nothing happens, to see what the machine does by itself.
	calmTime = 2 * time.Second
)

// playApart is the drill of a run that is shared out over a consumer group.
func (d *drill) playApart(ctx context.Context) error {
	log, err := d.longLog(ctx)
	if err != nil {
		return err
	}
	return d.play(ctx, plan{"apart", d.ShortTTL, func(p *part, ctx context.Context) error { return p.share(ctx, log) }})
}

// flock is the daemons that share a run.
type flock struct {
	*part
	sees *overseer
	// healthy are the daemons without a mishap, oldest first.
	healthy []*process
	// hurt are all others that were started.
	hurt  []*process
	count int
	feed  *stream
	track *track
	waits *waiter
	// windows are the steps of the script, as they were played.
	windows []window
}

// share runs the flock through its script and compares what it has published with a run that was left alone.
func (p *part) share(ctx context.Context, log string) error {
	p.pace = []string{"--epoch", apartEpoch.String(), "--scope", "partition", "--session", p.session().String()}
	t, err := p.newTopic(ctx, p.name, p.Partitions)
	if err != nil {
		return err
	}
	defer t.close()
	p.topic = t.name
	for n := range p.Partitions {
		p.watch.add(group.RunID(p.run, n), t.name)
	}
	f := &flock{part: p, sees: p.oversee(ctx), track: newTrack(p.Partitions), waits: startWaiter(ctx)}
	defer f.sees.close()
	defer f.waits.close()
	script := f.script()
	feeding, stop := context.WithCancel(ctx)
	defer stop()
	f.feed = t.stream(feeding, log, f.track, p.report.Records, len(script)+1)
	if err := f.live(ctx, script); err != nil {
		return err
	}
	f.sees.close()
	f.waits.close()
	f.judge()
	return f.sameAsAlone(ctx)
}

// live starts the flock, plays the script, and lets it end once everything is committed.
func (f *flock) live(ctx context.Context, script []func(context.Context) error) error {
	for range apartMembers {
		if _, err := f.join(ctx); err != nil {
			return err
		}
	}
	if err := f.settled(ctx); err != nil {
		return err
	}
	for _, step := range script {
		f.feed.step()
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := f.feed.rest(ctx); err != nil {
		return err
	}
	if err := f.all(ctx); err != nil {
		return err
	}
	for len(f.healthy) > 0 {
		if err := f.leave(ctx); err != nil {
			return err
		}
	}
	return nil
}

// session is how long the group waits for a daemon: as short as the embedded broker has it, or what other brokers take.
func (p *part) session() time.Duration {
	if p.Brokers == "" {
		return 2 * time.Second
	}
	return 6 * time.Second
}

// script is the faults, with daemons that join and leave in between, and a calm before and after them.
func (f *flock) script() (steps []func(context.Context) error) {
	moves := 0
	steps = append(steps, f.calm)
	defer func() { steps = append(steps, f.calm) }()
	for i, m := range f.apartMishaps() {
		steps = append(steps, func(ctx context.Context) error { return f.mishap(ctx, m) })
		for moves < f.Moves*(i+1)/f.Faults/2*2 {
			steps = append(steps, f.joins, f.leaves)
			moves += 2
		}
	}
	return steps
}

// apartMishaps are so many faults: every other one kills, the others stop, each at another point.
func (f *flock) apartMishaps() (out []mishap) {
	points := f.points()
	slices.SortStableFunc(points, func(a, b string) int { return rank(b) - rank(a) })
	// Who is stopped within a write to a SQLite file holds up everybody.
	outside := slices.DeleteFunc(slices.Clone(points), func(p string) bool { return f.kind == control.StoreSQLite && strings.HasPrefix(p, "store:") })
	slices.Reverse(outside)
	for i := range f.Faults {
		if i%2 == 0 {
			out = append(out, mishap{points[i/2%len(points)], "kill"})
		} else {
			out = append(out, mishap{outside[i/2%len(outside)], "stop"})
		}
	}
	return out
}

func (f *flock) start(points string) (*process, error) {
	f.count++
	if points != "" {
		points += ","
	}
	return f.weir(fmt.Sprintf("member%d", f.count), options{daemon: true, points: points + stepTold})
}

// join starts a daemon that will be healthy.
func (f *flock) join(ctx context.Context) (*process, error) {
	p, err := f.start("")
	if err == nil {
		f.healthy = append(f.healthy, p)
		err = f.has(ctx, p)
	}
	return p, err
}

// has waits until a daemon has the lease of a partition.
func (f *flock) has(ctx context.Context, by *process) error {
	return f.await(ctx, by, patience, func() (bool, error) {
		owners, err := f.owners(ctx)
		return slices.Contains(slices.Collect(maps.Values(owners)), by.pid), err
	}, "%s has a partition", by.name)
}

// owners are the processes that hold the leases, by partition.
func (f *flock) owners(ctx context.Context) (map[int32]int, error) {
	out := map[int32]int{}
	all, err := f.eyes.ListLeases(ctx)
	for _, l := range all {
		n, ok := group.PartitionOf(control.StreamLease(f.run), l.Name)
		if !ok || !l.Valid {
			continue
		}
		for _, p := range append(slices.Clone(f.healthy), f.hurt...) {
			if strings.Contains(l.Owner, fmt.Sprintf("-%d-", p.pid)) {
				out[n] = p.pid
			}
		}
	}
	return out, err
}

// settled waits until healthy daemons have all partitions, and each has moved on, or has nothing left to move on to.
func (f *flock) settled(ctx context.Context) error {
	began, _ := f.sees.stands()
	return poll(ctx, patience, func() (bool, error) {
		owners, err := f.owners(ctx)
		if err != nil {
			return false, err
		}
		now, records := f.sees.stands()
		for n := range f.Partitions {
			ours := slices.ContainsFunc(f.healthy, func(p *process) bool { return p.pid == owners[n] })
			if !ours || now[n] <= began[n] && records[n] < f.track.written(n) {
				return false, nil
			}
		}
		return true, nil
	}, "healthy daemons have all partitions, and commit what is written")
}

// calm lets nothing happen for a while.
func (f *flock) calm(ctx context.Context) error {
	began := time.Now()
	timer := time.NewTimer(calmTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	f.windows = append(f.windows, window{kind: calmly, began: began, ended: time.Now()})
	return nil
}

// mishap lets one daemon more have a fault, and the others go on.
func (f *flock) mishap(ctx context.Context, m mishap) error {
	start := time.Now()
	by, err := f.start(m.apart() + "=" + m.action)
	if err != nil {
		return err
	}
	f.hurt = append(f.hurt, by)
	err = f.fires(ctx, by, failpointOf(m.point), m.action)
	f.promise(err == nil, m.action+" at "+m.apart(), "%s (pid %d); %s", by.name, by.pid, orOK(err))
	if err != nil {
		return err
	}
	began := time.Now()
	if m.action == "stop" {
		if err := f.wakes(ctx, by, m); err != nil {
			return err
		}
	}
	err = f.settled(ctx)
	f.windows = append(f.windows, window{kind: byFault, began: start, ended: time.Now(), hurt: by.pid})
	if took := time.Since(began); m.action == "kill" && err == nil && took > f.sees.slowest {
		f.sees.slowest = took
		f.figure("others_work_after_kill_longest", took)
	}
	return err
}

// apart is the point with its epoch: what comes before anything is read has none.
func (m mishap) apart() string {
	name := failpointOf(m.point)
	if m.early() {
		return name
	}
	return name + "@+1"
}

// wakes lets a stopped daemon go on when its leases have run out. It is a member again, or still, and ends in order when it is asked to.
func (f *flock) wakes(ctx context.Context, by *process, m mishap) error {
	timer := time.NewTimer(time.Duration(asleep * float64(f.ttl)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	woken := time.Now() // before it may say anything
	if err := by.thaw(); err != nil {
		return err
	}
	err := f.await(ctx, by, patience, func() (bool, error) { return by.since(woken), nil }, "%s, awake, works on", by.name)
	if err != nil {
		return err
	}
	return f.ends(ctx, by, "who was stopped at "+m.point+" and woke")
}

// ends asks a daemon to end.
func (f *flock) ends(ctx context.Context, by *process, who string) error {
	if err := by.signal(sigTerm); err != nil {
		return err
	}
	began := time.Now()
	if err := by.wait(ctx, patience); err != nil {
		return err
	}
	took := time.Since(began)
	f.promise(by.code() == 0 && took <= leaveWithin+f.Grace, by.name+", "+who+", ends with exit code 0 within "+(leaveWithin+f.Grace).String(), "%s after %s; %s", by.how(), took.Round(time.Millisecond), lastLine(by))
	return nil
}

func lastLine(p *process) string {
	lines := strings.Split(strings.TrimSpace(p.said()), "\n")
	return lines[len(lines)-1]
}

func (f *flock) joins(ctx context.Context) error {
	return f.move(ctx, func() error {
		_, err := f.join(ctx)
		return err
	})
}

func (f *flock) leaves(ctx context.Context) error {
	return f.move(ctx, func() error { return f.leave(ctx) })
}

// leave asks the oldest daemon to end.
func (f *flock) leave(ctx context.Context) error {
	old := f.healthy[0]
	f.healthy, f.hurt = f.healthy[1:], append(f.hurt, old)
	return f.ends(ctx, old, "asked to")
}

// move does something that moves partitions in order.
func (f *flock) move(ctx context.Context, do func() error) error {
	began := time.Now()
	if err := do(); err != nil {
		return err
	}
	if err := f.settled(ctx); err != nil {
		return err
	}
	f.windows = append(f.windows, window{kind: byMove, began: began, ended: time.Now()})
	return nil
}

// all waits until every record is committed.
func (f *flock) all(ctx context.Context) error {
	return poll(ctx, patience, func() (bool, error) {
		runs, err := f.eyes.Runs(ctx)
		n := int64(0)
		for _, r := range runs {
			if _, ok := group.PartitionOf(f.run, r.Header.RunID); ok {
				n += r.Counts.Records
			}
		}
		return n == f.report.Records, err
	}, "every record is committed")
}

// judge turns what was seen of the flock into checks.
func (f *flock) judge() {
	f.sees.judge()
	f.judgeStanding()
	var wrong []string
	members := append(slices.Clone(f.healthy), f.hurt...)
	commits := 0
	for _, p := range members {
		n, bad := p.afterGivenUp()
		commits += n
		wrong = append(wrong, bad...)
	}
	f.promise(len(wrong) == 0 && commits > 0, "no daemon commits anything of a partition after it has given it up", "%d commits of %d daemons %s", commits, len(members), strings.Join(wrong, "; "))
}

// afterGivenUp counts the commits that a daemon tells of, and names those of partitions that it had given up.
func (p *process) afterGivenUp() (commits int, wrong []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	has := map[string]bool{}
	for _, l := range p.lines {
		words := strings.Fields(l.text)
		switch {
		case len(words) > 3 && words[0] == "weir:" && words[1] == "partition" && words[3] == "assigned":
			has[words[2]] = true
		case len(words) > 4 && words[0] == "weir:" && words[1] == "partition" && words[3] == "given":
			has[words[2]] = false
		case strings.Contains(l.text, "msg=committed "):
			commits++
			_, rest, _ := strings.Cut(l.text, "partition=")
			if n, _, _ := strings.Cut(rest, " "); !has[n] {
				wrong = append(wrong, p.name+": "+l.text)
			}
		}
	}
	return commits, wrong
}

// since says whether a process has said or processed anything after a time.
func (p *process) since(t time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.lines, func(l line) bool { return l.at.After(t) }) || slices.ContainsFunc(p.steps, func(s fired) bool { return s.Time.After(t) })
}

// sameAsAlone compares what is published with a run of one owner that was left alone.
func (f *flock) sameAsAlone(ctx context.Context) error {
	args := append([]string{"run", f.flowFile(), "--topic", f.topic, "--run-id", f.run + "-alone", "--store", "env:" + storeEnv,
		"--until-n", fmt.Sprint(f.report.Records), "--ttl", f.ttl.String(), "--json"}, f.brokerArgs()...)
	alone, err := f.fleet.start(f.name+"-alone", []string{storeEnv + "=" + f.storeText}, args...)
	if err != nil {
		return err
	}
	if err := alone.wait(ctx, patience); err != nil {
		return err
	}
	docs := map[string]emitted{}
	for _, run := range []string{f.run, f.run + "-alone"} {
		path := filepath.Join(f.dir, run+".json")
		p, err := f.fleet.start(f.name+"-emit", []string{storeEnv + "=" + f.storeText}, "journal", "emit", run, "--flow", f.flowFile(), "--store", "env:"+storeEnv, "--out", path, "--json")
		if err != nil {
			return err
		}
		if err := p.wait(ctx, patience); err != nil {
			return err
		}
		if docs[run], err = readEmit(path); err != nil {
			return fmt.Errorf("the document of %s: %w; it said:\n%s", run, err, tail(p.said()))
		}
		_ = os.Remove(path) // it is large, and was read
	}
	a, b := docs[f.run], docs[f.run+"-alone"]
	set := map[string]bool{}
	for _, id := range a.Events {
		set[id] = true
	}
	f.promise(len(set) == len(a.Events), "no event id is published twice", "%d ids, %d of them different", len(a.Events), len(set))
	f.promise(slices.Equal(a.Events, b.Events) && len(b.Events) > 0, "the events are those of the run that was left alone", "%d and %d", len(a.Events), len(b.Events))
	f.promise(a.ValuesHash == b.ValuesHash, "values_hash is that of the run that was left alone", "%s and %s", a.ValuesHash, b.ValuesHash)
	f.promise(maps.Equal(a.Positions, b.Positions), "the positions are those of the run that was left alone", "%v", a.Positions)
	f.promise(a.Consumed == b.Consumed && a.Omitted == b.Omitted && a.Duplicates == b.Duplicates && a.Late == b.Late && a.Future == b.Future && a.Filtered == b.Filtered,
		"every record is counted as in the run that was left alone", "consumed %d, omitted %d, duplicates %d, late %d", a.Consumed, a.Omitted, a.Duplicates, a.Late)
	return nil
}
