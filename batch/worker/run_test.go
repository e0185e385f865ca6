package worker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/record"
)

func TestOneRun(t *testing.T) {
	t.Parallel()
	p := newPlace(t, controltest.NewMemory())
	id := p.submit("a")
	o := p.once(p.config())
	if o.Kind != Succeeded || o.RunID != id || o.Token != 1 || len(o.ResultRefs) != 1 {
		t.Fatalf("%+v", o)
	}
	p.succeeded(id)
	p.ended()
	name, err := checkpoint.ParseRef(o.ResultRefs[0])
	if err != nil {
		t.Fatal(err)
	}
	b, err := checkpoint.GetBytes(t.Context(), p.blobs, name, 1<<20)
	if err != nil || record.Hash(b) != o.ResultRefs[0] {
		t.Fatal(err)
	}
	if canonical, err := record.Canonical(b); err != nil || string(canonical) != string(b) || !strings.Contains(string(b), fixture.ValuesHash) {
		t.Errorf("the artefact is not the canonical document: %v\n%s", err, b)
	}
	value := p.publications()[control.ResultKey(id)]
	if canonical, err := record.Canonical([]byte(value)); err != nil || string(canonical) != value || !strings.Contains(value, `"rows":6`) {
		t.Errorf("%v: %s", err, value)
	}
	if _, found, err := Once(t.Context(), p.config()); found || err != nil {
		t.Errorf("there is nothing more: %v, %v", found, err)
	}
	// Another key gives another run with the same document.
	second := p.submit("b")
	if again := p.once(p.config()); again.RunID != second || again.ResultRefs[0] != o.ResultRefs[0] {
		t.Errorf("%+v", again)
	}
	p.succeeded(second)
}

// TestFailures: a run that cannot be computed is FAILED once, with a message that names no folder, and is not tried again.
func TestFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body, want string
		mess       func(p *place)
	}{
		"no flow":            {`{"flow":"gone","snapshot":"fixture"}`, `NAME_UNKNOWN: there is no flow "gone"`, nil},
		"no snapshot":        {`{"flow":"ema","snapshot":"gone"}`, `NAME_UNKNOWN: there is no snapshot "gone"`, nil},
		"a path as a flow":   {`{"flow":"../ema","snapshot":"fixture"}`, "NAME_INVALID", nil},
		"a path as a source": {`{"flow":"ema","snapshot":"/etc/passwd"}`, "NAME_INVALID", nil},
		"a field too many":   {`{"exec":"rm","flow":"ema","snapshot":"fixture"}`, `REQUEST_INVALID: the body has "exec"`, nil},
		"a number as a flow": {`{"flow":1,"snapshot":"fixture"}`, `REQUEST_INVALID: the body's "flow"`, nil},
		"nothing named":      {`{}`, "NAME_INVALID", nil},
		"no object":          {`[]`, "REQUEST_INVALID", nil},
		"a bad flow":         {`{"flow":"bad","snapshot":"fixture"}`, "bad.yaml", func(p *place) { p.write("flows/bad.yaml", "flow: weir/1\nno: 1\n") }},
		"a bad row": {`{"flow":"ema","snapshot":"bad"}`, "bad.jsonl", func(p *place) {
			p.write("snapshots/bad.jsonl", string(fixture.Snapshot)+"{\n")
		}},
		"a row of another kind": {`{"flow":"ema","snapshot":"bad"}`, "SNAPSHOT_INVALID", func(p *place) {
			p.write("snapshots/bad.jsonl", strings.Replace(string(fixture.Snapshot), `"close":1.0`, `"close":"1"`, 1))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, controltest.NewMemory())
			if c.mess != nil {
				c.mess(p)
			}
			id := p.submitBody("a", c.body)
			o := p.once(p.config())
			r := p.run(id)
			if o.Kind != Failed || r.Phase != control.Failed || r.Error != o.Error || !strings.Contains(r.Error, c.want) || r.ResultRefs != nil {
				t.Errorf("%+v\n%+v", o, r)
			}
			for _, bad := range []string{p.dir, filepath.Dir(p.dir), "goroutine", ".go:"} {
				if strings.Contains(r.Error, bad) {
					t.Errorf("the message has %q: %s", bad, r.Error)
				}
			}
			if len(p.publications()) != 0 {
				t.Errorf("published %v", p.publications())
			}
			p.ended()
			if _, found, err := Once(t.Context(), p.config()); found || err != nil {
				t.Errorf("it is tried again: %v, %v", found, err)
			}
		})
	}
}

func TestFailuresAroundTheComputation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step func(string) error
		want string
	}{
		"a panic":      {at("computed", func() error { panic("a bug of an operator at /home/x/y.go") }), "INTERNAL: the computation panicked: a bug of an operator at y.go"},
		"a full disk":  {at("computed", func() error { return codes.New(codes.OutputUnwritable, "emit.json cannot be written: no space left") }), "OUTPUT_UNWRITABLE"},
		"control text": {at("computed", func() error { return errors.New("\x1b[31mred\x00") }), "\ufffd[31mred\ufffd"},
		"a long text":  {at("computed", func() error { return errors.New(strings.Repeat("é", 5000)) }), "é…"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, controltest.NewMemory())
			id := p.submit("a")
			cfg := p.config()
			cfg.step = c.step
			p.once(cfg)
			if r := p.run(id); r.Phase != control.Failed || !strings.Contains(r.Error, c.want) || len(r.Error) > control.MaxRunError {
				t.Errorf("%+v", r)
			}
			p.ended()
		})
	}
}

// TestCancelledBeforeTheStart: the run is CANCELLED and not computed. TestCancelledInTheMiddle: it goes on.
func TestCancelledBeforeTheStart(t *testing.T) {
	t.Parallel()
	p := newPlace(t, controltest.NewMemory())
	id, next := p.submit("a"), p.submit("b")
	if _, err := p.store.CancelRun(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	cfg := p.config()
	var seen []Outcome
	cfg.OnEnd = func(o Outcome) { seen = append(seen, o) }
	if o := p.once(cfg); o.RunID != next {
		t.Errorf("%+v", o)
	}
	if len(seen) != 2 || seen[0].Kind != Cancelled || p.run(id).Phase != control.Cancelled || len(p.publications()) != 1 {
		t.Errorf("%+v, %+v", seen, p.run(id))
	}
	p.ended()
}

func TestCancelledInTheMiddle(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"started", "computed", "between", "ended"} {
		p := newPlace(t, controltest.NewMemory())
		id := p.submit("a")
		cfg := p.config()
		cfg.step = at(step, func() error {
			r, err := p.store.CancelRun(t.Context(), id)
			if err == nil && r.CancelRequested {
				err = fmt.Errorf("a run that is %s takes note of a cancellation", r.Phase)
			}
			return err
		})
		p.once(cfg)
		p.succeeded(id)
		p.ended()
	}
}

// TestCancelRacesTheStart: whichever is first, the end is CANCELLED with nothing published, or SUCCEEDED with the result.
func TestCancelRacesTheStart(t *testing.T) {
	t.Parallel()
	ends := map[control.RunPhase]int{}
	for i := range 40 {
		p := newPlace(t, controltest.NewMemory())
		id := p.submit("a")
		cancelled := make(chan error, 1)
		cfg := p.config()
		cancel := func() {
			_, err := p.store.CancelRun(context.WithoutCancel(t.Context()), id)
			cancelled <- err
		}
		// Half of them race; the others keep the order, so that both ends are seen.
		switch i % 4 {
		case 0:
			cancel()
		case 1:
			cfg.step = at("started", func() error { cancel(); return nil })
		default:
			cfg.step = at("leased", func() error { go cancel(); return nil })
		}
		if _, _, err := Once(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		if err := <-cancelled; err != nil {
			t.Fatal(err)
		}
		r := p.run(id)
		ends[r.Phase]++
		if published := len(p.publications()); (r.Phase != control.Cancelled || published != 0) && (r.Phase != control.Succeeded || published != 1) {
			t.Errorf("%s with %d publications", r.Phase, published)
		}
		p.ended()
	}
	if ends[control.Cancelled] == 0 || ends[control.Succeeded] == 0 {
		t.Errorf("%v: only one end was seen", ends)
	}
}

// TestUnknownAnswers: every write whose answer is lost, or that does not arrive, is read back before it is tried again; the run ends once.
func TestUnknownAnswers(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"start", "succeed"} {
		for _, lost := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, it stands %v", op, lost), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := newIntercept()
					p := newPlace(t, s)
					id := p.submit("a")
					if lost {
						s.on(nil, nth(op, 1, errAway))
					} else {
						s.on(nth(op, 1, errAway), nil)
					}
					if o := p.once(p.config()); o.Kind != Succeeded {
						t.Errorf("%+v", o)
					}
					p.succeeded(id)
					p.ended()
					want := int64(2)
					if !lost {
						want = 3
					}
					if got := s.fenced.Load(); got != want {
						t.Errorf("%d writes, want %d: what stands is not written again", got, want)
					}
				})
			})
		}
	}
}

// TestReadBackBeforeRetry: while the store cannot be read either, nothing is written; what an answer in doubt left behind is found, also when
// the retry is refused because the first try has come through after all.
func TestReadBackBeforeRetry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newIntercept()
		p := newPlace(t, s)
		id := p.submit("a")
		gone := false
		var lookups, writes int
		s.on(func(_ context.Context, op string) error {
			switch {
			case op == "lookup" && gone:
				lookups++
				if lookups < 4 {
					return errAway
				}
			case op == "succeed":
				writes++
			}
			return nil
		}, func(_ context.Context, op string) error {
			if op == "succeed" {
				gone = true
				return errAway
			}
			return nil
		})
		if o := p.once(p.config()); o.Kind != Succeeded {
			t.Errorf("%+v", o)
		}
		if lookups != 4 || writes != 1 {
			t.Errorf("%d lookups, %d writes", lookups, writes)
		}
		p.succeeded(id)
		p.ended()
	})
}

// TestPublishedOtherwise: a result under the key with another digest is an alarm: it stays, and the run is FAILED.
func TestPublishedOtherwise(t *testing.T) {
	t.Parallel()
	p := newPlace(t, controltest.NewMemory())
	id := p.submit("a")
	l, err := p.store.Acquire(t.Context(), "planted", "somebody", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	planted := control.Publication{Key: control.ResultKey(id), Value: []byte(`{"artifact":"other"}`), RunID: id}
	if err := p.store.Fenced(t.Context(), l, control.Publish{Publications: []control.Publication{planted}}); err != nil {
		t.Fatal(err)
	}
	o := p.once(p.config())
	if o.Kind != Failed || !strings.Contains(o.Error, "PUBLICATION_CONFLICT") || p.run(id).Phase != control.Failed || p.publications()[planted.Key] != string(planted.Value) {
		t.Errorf("%+v, %v", o, p.publications())
	}
}

// TestARunThatKillsItsWorkers is not taken up for ever.
func TestARunThatKillsItsWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t, controltest.NewMemory())
		id := p.submit("a")
		cfg := p.config()
		cfg.MaxTerms = 3
		cfg.step = at("computed", func() error { return errCrash })
		for range 3 {
			cfg.Owner = control.NewOwner()
			if _, _, err := Once(t.Context(), cfg); !errors.Is(err, errCrash) {
				t.Fatal(err)
			}
			<-time.After(time.Minute) // virtual: the dead worker's lease expires
		}
		o := p.once(p.config())
		if o.Kind != Succeeded {
			t.Errorf("with the default bound it goes on: %+v", o)
		}
		p.succeeded(id)

		id = p.submit("b")
		for range 3 {
			cfg.Owner = control.NewOwner()
			if _, _, err := Once(t.Context(), cfg); !errors.Is(err, errCrash) {
				t.Fatal(err)
			}
			<-time.After(time.Minute)
		}
		cfg.Owner = control.NewOwner()
		if o := p.once(cfg); o.Kind != Failed || !strings.Contains(p.run(id).Error, "taken up 3 times") {
			t.Errorf("%+v", o)
		}
	})
}
