package controltest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
)

var effectChecks = []controlCheck{
	{"effect: publication if absent", checkPublishIfAbsent},
	{"effect: all or nothing", checkEffectsWhole},
	{"effect: a stale fence runs nothing", checkStaleRunsNothing},
	{"effect: many publications", checkManyPublications},
	{"effect: bytes are kept", checkPublishedBytes},
	{"effect: listing by prefix", checkPrefixes},
	{"effect: shapes", checkEffectShapes},
	{"effect: several at once under one lease", checkEffectsTogether},
	{"effect: one key, eight owners", checkOneKey},
	{"effect: never after the take-over", checkEffectsAndTakeOver},
	{"effect: lost answers", checkEffectsLost},
}

// publish is the effect of one publication.
func publish(key, value string) control.Publish {
	return control.Publish{Publications: []control.Publication{{Key: key, Value: []byte(value), RunID: "run_1"}}}
}

func checkPublishIfAbsent(p *plane) error {
	a, b := p.open(), p.open()
	l, err := p.take(a, "job", "a")
	if err != nil {
		return err
	}
	if err := a.Fenced(p.ctx, l, publish("k", `{"v":1}`)); err != nil {
		return fmt.Errorf("absent: %w", err)
	}
	other, err := p.take(b, "other", "b")
	if err != nil {
		return err
	}
	again := publish("k", `{"v":1}`)
	again.Publications[0].RunID = "run_2"
	if err := b.Fenced(p.ctx, other, again); err != nil {
		return fmt.Errorf("there with an equal digest: %w", err)
	}
	err = p.unchanged(b, "there with another digest", codes.PublicationConflict, func() error {
		err := b.Fenced(p.ctx, other, publish("k", `{"v":2}`))
		if err != nil && (!strings.Contains(err.Error(), `"k"`) || !strings.Contains(err.Error(), record.Hash([]byte(`{"v":1}`))) || !strings.Contains(err.Error(), record.Hash([]byte(`{"v":2}`)))) {
			return fmt.Errorf("the alarm does not name the key and both digests: %w", err)
		}
		return err
	})
	if err != nil {
		return err
	}
	n := 0
	err = a.Publications(p.ctx, "", func(pub control.Publication, digest string) error {
		if n++; pub.Key != "k" || string(pub.Value) != `{"v":1}` || pub.RunID != "run_1" || digest != record.Hash(pub.Value) {
			return fmt.Errorf("published: %+v, %s", pub, digest)
		}
		return nil
	})
	if err == nil && n != 1 {
		err = fmt.Errorf("%d publications", n)
	}
	return err
}

// Whatever fails last, nothing of what came before it stands.
func checkEffectsWhole(p *plane) error {
	s := p.open()
	done, doneLease, err := p.running(s, 1)
	if err != nil {
		return err
	}
	if err := s.Fenced(p.ctx, doneLease, publish("taken", "1"), control.FinishRun{RunID: done.ID, Phase: control.Failed, Error: "x"}); err != nil {
		return err
	}
	run, l, err := p.queued(s, 2)
	if err != nil {
		return err
	}
	claimed, err := s.Claim(p.ctx, "worker", 10)
	if err != nil || len(claimed) != 2 {
		return fmt.Errorf("claim: %v, %v", claimed, err)
	}
	before := []control.Effect{publish("fresh", "1"), control.StartRun{RunID: run.ID}, control.FinishRun{RunID: run.ID, Phase: control.Succeeded, ResultRefs: []string{"r"}}, control.Deliver{EventIDs: []int64{claimed[1].ID}}}
	for _, c := range []struct {
		what string
		last control.Effect
		code *codes.Code
	}{
		{"a publication of another digest", publish("taken", "2"), codes.PublicationConflict},
		{"a second start", control.StartRun{RunID: run.ID}, codes.RunNotQueued},
		{"a second finish", control.FinishRun{RunID: run.ID, Phase: control.Failed}, codes.RunNotRunning},
		{"a missing event", control.Deliver{EventIDs: []int64{claimed[1].ID, 1 << 40}}, codes.Internal},
		{"many publications of which one conflicts", func() control.Publish {
			many := numbered("many", 300)
			many.Publications[250] = publish("taken", "2").Publications[0]
			return many
		}(), codes.PublicationConflict},
	} {
		err := p.unchanged(s, c.what, c.code, func() error { return s.Fenced(p.ctx, l, append(slices.Clone(before), c.last)...) })
		if err != nil {
			return err
		}
	}
	if err := s.Fenced(p.ctx, l, before...); err != nil {
		return fmt.Errorf("without a failing effect: %w", err)
	}
	if _, err := p.phase(s, run.ID, control.Succeeded, 1); err != nil {
		return err
	}
	events, err := p.events(s)
	if err == nil && !events[run.ID].Delivered {
		err = errors.New("the event is not delivered")
	}
	return err
}

// numbered makes n publications under a prefix.
func numbered(prefix string, n int) (out control.Publish) {
	for i := range n {
		out.Publications = append(out.Publications, control.Publication{Key: fmt.Sprintf("%s/%06d", prefix, i), Value: fmt.Appendf(nil, `{"i":%d}`, i), RunID: "run_1"})
	}
	return out
}

// For each way in which a term ends or was never there, and each kind of effect.
func checkStaleRunsNothing(p *plane) error {
	s := p.open()
	for n, c := range []struct {
		what string
		end  func(l *control.Lease) error
	}{
		{"expired", func(l *control.Lease) error { return p.Expire(l.Name) }},
		{"released", func(l *control.Lease) error { return s.Release(p.ctx, *l) }},
		{"taken over", func(l *control.Lease) error {
			if err := p.Expire(l.Name); err != nil {
				return err
			}
			_, err := p.take(s, l.Name, "another")
			return err
		}},
		{"taken over by the same owner", func(l *control.Lease) error {
			if err := p.Expire(l.Name); err != nil {
				return err
			}
			_, err := p.take(s, l.Name, l.Owner)
			return err
		}},
		{"another owner's", func(l *control.Lease) error { l.Owner = "thief"; return nil }},
		{"of a token to come", func(l *control.Lease) error { l.Token++; return nil }},
		{"of no token", func(l *control.Lease) error { l.Token = 0; return nil }},
	} {
		queued, ql, err := p.queued(s, 2*n)
		if err != nil {
			return err
		}
		running, rl, err := p.running(s, 2*n+1)
		if err != nil {
			return err
		}
		events, err := p.events(s)
		if err != nil {
			return err
		}
		if err := errors.Join(c.end(&ql), c.end(&rl)); err != nil {
			return err
		}
		for what, call := range map[string]func() error{
			"publish": func() error { return s.Fenced(p.ctx, ql, publish("stale", "1")) },
			"many":    func() error { return s.Fenced(p.ctx, ql, numbered("stale", 200)) },
			"start":   func() error { return s.Fenced(p.ctx, ql, control.StartRun{RunID: queued.ID}) },
			"finish": func() error {
				return s.Fenced(p.ctx, rl, control.FinishRun{RunID: running.ID, Phase: control.Succeeded, ResultRefs: []string{"r"}})
			},
			"deliver": func() error { return s.Fenced(p.ctx, rl, control.Deliver{EventIDs: []int64{events[running.ID].ID}}) },
			"all": func() error {
				return s.Fenced(p.ctx, rl, publish("stale", "1"), control.FinishRun{RunID: running.ID, Phase: control.Failed}, control.Deliver{EventIDs: []int64{events[running.ID].ID}})
			},
			"nothing": func() error { return s.Fenced(p.ctx, rl) },
		} {
			if err := p.unchanged(s, c.what+", "+what, codes.StaleFence, call); err != nil {
				return err
			}
		}
	}
	return nil
}

// Counts around the sizes in which stores cut their statements.
func checkManyPublications(p *plane) error {
	s := p.open()
	l, err := p.take(s, "job", "a")
	if err != nil {
		return err
	}
	for _, n := range []int{0, 1, 7, 8, 9, 63, 64, 65, 999, 1000, 1001, 5000} {
		prefix := fmt.Sprintf("n%05d", n)
		all := numbered(prefix, n)
		if err := s.Fenced(p.ctx, l, control.Publish{Publications: all.Publications[:n/2]}, control.Publish{Publications: all.Publications[n/3:]}); err != nil {
			return fmt.Errorf("%d with an overlap: %w", n, err)
		}
		if err := s.Fenced(p.ctx, l, all); err != nil {
			return fmt.Errorf("%d again: %w", n, err)
		}
		got, err := p.published(s, prefix+"/")
		if err != nil {
			return err
		}
		if len(got) != n {
			return fmt.Errorf("%d publications, want %d", len(got), n)
		}
		for _, want := range all.Publications {
			if !bytes.Equal(got[want.Key].Value, want.Value) {
				return fmt.Errorf("%q holds %q", want.Key, got[want.Key].Value)
			}
		}
		if n == 0 {
			continue
		}
		changed := numbered(prefix, n)
		changed.Publications[n-1].Value = []byte("0")
		changed.Publications = append(changed.Publications, numbered(prefix+"x", 1).Publications...)
		if err := refusal("one differs", s.Fenced(p.ctx, l, changed), codes.PublicationConflict); err != nil {
			return err
		}
		if extra, err := p.published(s, prefix+"x"); err != nil || len(extra) > 0 {
			return fmt.Errorf("%d of a refused call stand, %v", len(extra), err)
		}
	}
	return nil
}

// oddValues are changed by stores that understand what they keep.
var oddValues = []string{`{"z":1,"a":2}`, `-0.0`, `[1e-05,1e+16,-0.0]`, `{"a":1,"a":2}`, ` 1 `, `"\u0000"`, `"é"`, "\"\u2028<&>\"", `12345678901234567890123456789012345678901234567890`, "\x00\xff\x01", "\\x41", `{"k":"it's $1"}`}

func checkPublishedBytes(p *plane) error {
	s := p.open()
	l, err := p.take(s, "job", "a")
	if err != nil {
		return err
	}
	values := append(slices.Clone(oddValues), strings.Repeat("x", 3<<20))
	keys := append([]string(nil), oddNames...)
	for i, v := range values {
		keys = append(keys, fmt.Sprintf("value/%02d", i))
		buf := []byte(v)
		pub := control.Publication{Key: keys[len(keys)-1], Value: buf, RunID: "it's 100 %"}
		if err := s.Fenced(p.ctx, l, control.Publish{Publications: []control.Publication{pub}}); err != nil {
			return fmt.Errorf("value %.20q: %w", v, err)
		}
		clear(buf) // nothing of a call is kept
	}
	for _, k := range oddNames {
		if err := s.Fenced(p.ctx, l, publish(k, "1")); err != nil {
			return err
		}
	}
	got, err := p.published(p.open(), "")
	if err != nil || len(got) != len(keys) {
		return fmt.Errorf("%d publications, %v", len(got), err)
	}
	for i, v := range values {
		if pub := got[fmt.Sprintf("value/%02d", i)]; string(pub.Value) != v || pub.RunID != "it's 100 %" {
			return fmt.Errorf("value %d: %d bytes %.40q, want %d bytes %.40q", i, len(pub.Value), pub.Value, len(v), v)
		}
	}
	for _, k := range oddNames {
		if string(got[k].Value) != "1" {
			return fmt.Errorf("key %q is missing", k)
		}
	}
	return nil
}

func checkPrefixes(p *plane) error {
	s := p.open()
	l, err := p.take(s, "job", "a")
	if err != nil {
		return err
	}
	keys := []string{"a", "a%b", "a%c", "a_b", "ab", "aB", "B", "b", "é", "e", "a\U0010FFFF", "a\U0010FFFFz", "zz"}
	for _, k := range keys {
		if err := s.Fenced(p.ctx, l, publish(k, "1")); err != nil {
			return err
		}
	}
	slices.Sort(keys)
	for _, prefix := range []string{"", "a", "a%", "a_", "B", "é", "a\U0010FFFF", "z", "none", "A"} {
		var want, got []string
		for _, k := range keys {
			if strings.HasPrefix(k, prefix) {
				want = append(want, k)
			}
		}
		err := s.Publications(p.ctx, prefix, func(pub control.Publication, _ string) error { got = append(got, pub.Key); return nil })
		if err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("prefix %q: %q, want %q (%v)", prefix, got, want, err)
		}
	}
	own := errors.New("enough")
	n := 0
	err = s.Publications(p.ctx, "", func(control.Publication, string) error {
		if n++; n == 2 {
			return own
		}
		_, err := s.LookupRun(p.ctx, "none") // a reader may read
		return wants("unknown run", err, codes.RunUnknown)
	})
	if err != own || n != 2 {
		return fmt.Errorf("the reader's own error came back as %v after %d", err, n)
	}
	return nil
}

func checkEffectShapes(p *plane) error {
	s := p.open()
	run, l, err := p.running(s, 1)
	if err != nil {
		return err
	}
	other, _, err := p.queued(s, 2)
	if err != nil {
		return err
	}
	unknown, err := p.take(s, control.RunLease("run_0"), "a")
	if err != nil {
		return err
	}
	for _, c := range []struct {
		what   string
		lease  control.Lease
		effect control.Effect
		code   *codes.Code
	}{
		{"no key", l, publish("", "1"), codes.Internal},
		{"NUL in a key", l, publish("a\x00", "1"), codes.Internal},
		{"invalid UTF-8 in a key", l, publish("\xff", "1"), codes.Internal},
		{"long key", l, publish(strings.Repeat("k", control.MaxName+1), "1"), codes.Internal},
		{"no value", l, publish("k", ""), codes.Internal},
		{"start under another lease", l, control.StartRun{RunID: other.ID}, codes.Internal},
		{"finish under another lease", l, control.FinishRun{RunID: other.ID, Phase: control.Failed}, codes.Internal},
		{"finish as RUNNING", l, control.FinishRun{RunID: run.ID, Phase: control.Running}, codes.Internal},
		{"finish as CANCELLED", l, control.FinishRun{RunID: run.ID, Phase: control.Cancelled}, codes.Internal},
		{"nil", l, nil, codes.Internal},
		{"start of an unknown run", unknown, control.StartRun{RunID: "run_0"}, codes.RunUnknown},
		{"finish of an unknown run", unknown, control.FinishRun{RunID: "run_0", Phase: control.Failed}, codes.RunUnknown},
		{"an unknown event", l, control.Deliver{EventIDs: []int64{0}}, codes.Internal},
		{"two values of one key", l, control.Publish{Publications: []control.Publication{{Key: "k", Value: []byte("1")}, {Key: "k", Value: []byte("2")}}}, codes.PublicationConflict},
	} {
		if err := p.unchanged(s, c.what, c.code, func() error { return s.Fenced(p.ctx, c.lease, c.effect) }); err != nil {
			return err
		}
	}
	twice := control.Publish{Publications: []control.Publication{{Key: "k", Value: []byte("1")}, {Key: "k", Value: []byte("1")}}}
	if err := s.Fenced(p.ctx, l, twice, control.Deliver{}, control.Publish{}); err != nil {
		return fmt.Errorf("one publication twice in a call, and nothing: %w", err)
	}
	return nil
}

func checkEffectsTogether(p *plane) error {
	const clients, each = 8, 6
	stores := p.opens(clients)
	l, err := p.take(stores[0], "job", "a")
	if err != nil {
		return err
	}
	errs := together(clients, func(i int) error {
		for n := range each {
			if err := stores[i].Fenced(p.ctx, l, publish(fmt.Sprintf("k/%d/%d", i, n), "1"), publish("shared", "1")); err != nil {
				return err
			}
			if _, err := stores[i].Renew(p.ctx, l); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	got, err := p.published(stores[0], "")
	if err == nil && len(got) != clients*each+1 {
		err = fmt.Errorf("%d publications", len(got))
	}
	return err
}

func checkOneKey(p *plane) error {
	const owners = 8
	stores := p.opens(owners)
	leases := make([]control.Lease, owners)
	for i := range leases {
		var err error
		if leases[i], err = p.take(stores[i], fmt.Sprintf("job-%d", i), "a"); err != nil {
			return err
		}
	}
	for round := range 5 {
		key := fmt.Sprintf("key-%d", round)
		errs := together(owners, func(i int) error { return stores[i].Fenced(p.ctx, leases[i], publish(key, fmt.Sprint(i%2))) })
		got, err := p.published(stores[0], key)
		if err != nil {
			return err
		}
		for i, err := range errs {
			if fmt.Sprint(i%2) == string(got[key].Value) {
				if err != nil {
					return fmt.Errorf("an equal value was refused: %w", err)
				}
			} else if err := refusal("another value", err, codes.PublicationConflict); err != nil {
				return err
			}
		}
	}
	return nil
}

// What the old owner has published when the new one has the lease is all that it ever publishes.
func checkEffectsAndTakeOver(p *plane) error {
	const rounds, clients = 5, 3
	stores := p.opens(clients + 1)
	for round := range rounds {
		name := fmt.Sprintf("job-%d", round)
		l, err := p.take(stores[0], name, "a")
		if err != nil {
			return err
		}
		var seen map[string]control.Publication
		begun, over := make(chan struct{}, clients), make(chan struct{})
		errs := together(clients+1, func(i int) error {
			if i < clients {
				return p.publishUntil(stores[i], l, fmt.Sprintf("%s/%d", name, i), begun, over)
			}
			defer close(over)
			for range clients { // all are at work
				<-begun
			}
			err := p.Expire(name)
			if err == nil {
				_, err = p.take(stores[i], name, "b")
			}
			if err == nil {
				seen, err = p.published(stores[i], name)
			}
			return err
		})
		if err := errs[clients]; err != nil {
			return fmt.Errorf("take-over: %w", err)
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
		after, err := p.published(stores[0], name)
		if err != nil {
			return err
		}
		if len(after) != len(seen) {
			return fmt.Errorf("round %d: %d publications at the take-over, %d later", round, len(seen), len(after))
		}
	}
	return nil
}

// publishUntil publishes until it is refused, which it must be once the take-over is over.
func (p *plane) publishUntil(s control.ControlStore, l control.Lease, prefix string, begun chan<- struct{}, over <-chan struct{}) error {
	for n := 0; ; n++ {
		if n == 1 {
			begun <- struct{}{}
		}
		last := false
		select {
		case <-over:
			last = true
		default:
		}
		err := s.Fenced(p.ctx, l, publish(fmt.Sprintf("%s/%d", prefix, n), "1"))
		if err != nil && n == 0 {
			begun <- struct{}{} // nobody shall wait for it
			return fmt.Errorf("the owner cannot publish: %w", err)
		}
		if codes.Has(err, codes.StaleFence) {
			return nil
		}
		if err != nil {
			return err
		}
		if last {
			return errors.New("the old owner publishes after the take-over")
		}
	}
}

func checkEffectsLost(p *plane) error {
	s := p.open()
	run, l, err := p.queued(s, 1)
	if err != nil {
		return err
	}
	claimed, err := s.Claim(p.ctx, "worker", 1)
	if err != nil || len(claimed) != 1 {
		return fmt.Errorf("claim: %v, %v", claimed, err)
	}
	start := func() error { return s.Fenced(p.ctx, l, control.StartRun{RunID: run.ID}) }
	if err := p.lost(s, "start", start); err != nil {
		return err
	}
	if _, err := p.phase(s, run.ID, control.Running, 0); err != nil {
		return err
	}
	if err := refusal("start again", start(), codes.RunNotQueued); err != nil {
		return err
	}
	finish := []control.Effect{publish(control.ResultKey(run.ID), "1"), control.FinishRun{RunID: run.ID, Phase: control.Succeeded, ResultRefs: []string{"r"}}, control.Deliver{EventIDs: []int64{claimed[0].ID}}}
	if err := p.lost(s, "finish", func() error { return s.Fenced(p.ctx, l, finish...) }); err != nil {
		return err
	}
	if _, err := p.phase(s, run.ID, control.Succeeded, 1); err != nil {
		return err
	}
	err = p.unchanged(s, "finish again", codes.RunNotRunning, func() error { return s.Fenced(p.ctx, l, finish...) })
	if err != nil {
		return err
	}
	if err := p.lost(s, "publish", func() error { return s.Fenced(p.ctx, l, publish("k", "1")) }); err != nil {
		return err
	}
	if err := s.Fenced(p.ctx, l, publish("k", "1"), finish[2]); err != nil {
		return fmt.Errorf("publish and deliver again: %w", err)
	}
	return nil
}
