package checkpointtest

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
)

func owner(t *testing.T, p Place) {
	if got, err := p.Open(t).Owner(t.Context()); err != nil || got != p.Owner {
		t.Errorf("owner %q, %v; want %q", got, err, p.Owner)
	}
}

// away sets a blob aside and returns how it is listed.
func away(t testing.TB, s checkpoint.Blobs, name string) checkpoint.Aside {
	t.Helper()
	before := asides(t, s)
	if done, err := s.SetAside(t.Context(), name, 0); err != nil || !done {
		t.Fatalf("%s is not set aside: %v, %v", name, done, err)
	}
	for _, a := range asides(t, s) {
		if !slices.ContainsFunc(before, func(b checkpoint.Aside) bool { return a.Ticket == b.Ticket }) {
			return a
		}
	}
	t.Fatalf("%s was set aside and is not listed", name)
	return checkpoint.Aside{}
}

func asides(t testing.TB, s checkpoint.Blobs) []checkpoint.Aside {
	t.Helper()
	var all []checkpoint.Aside
	if err := s.Aside(t.Context(), func(a checkpoint.Aside) error {
		all = append(all, a)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func stands(t testing.TB, s checkpoint.Blobs, b []byte) bool {
	t.Helper()
	has, hasErr := s.Has(t.Context(), nameOf(b))
	touched, err := s.Touch(t.Context(), []checkpoint.Info{{Name: nameOf(b), Size: int64(len(b))}})
	if err != nil || hasErr != nil || len(touched) != 1 || touched[0] != has {
		t.Fatalf("Touch %v, %v; Has %v, %v", touched, err, has, hasErr)
	}
	return has
}

// setAside: what is set aside stands for nobody: not listed, not had, not touched, but listed as aside, and every handle agrees.
func setAside(t *testing.T, p Place) {
	s, other := p.Open(t), p.Open(t)
	if got := asides(t, s); len(got) != 0 {
		t.Errorf("an empty store lists %v", got)
	}
	b, kept := Bytes(1, 200_000), []byte("kept")
	name := put(t, s, b)
	put(t, s, kept)
	a := away(t, other, name)
	if a.Name != name || a.Size != int64(len(b)) || a.Since.IsZero() || a.Ticket == "" {
		t.Errorf("%+v", a)
	}
	if stands(t, s, b) || !stands(t, s, kept) || !slices.Equal(listed(t, s), []string{nameOf(kept)}) {
		t.Errorf("it stands still: %v", listed(t, s))
	}
	if done, err := s.SetAside(t.Context(), name, 0); done || err != nil {
		t.Errorf("a second time: %v, %v", done, err)
	}
	if done, err := s.SetAside(t.Context(), nameOf([]byte("never")), 0); done || err != nil {
		t.Errorf("what was never there: %v, %v", done, err)
	}
	// Written anew it stands, and what was set aside is not it.
	put(t, s, b)
	if !stands(t, other, b) {
		t.Error("written anew, it does not stand")
	}
	want(t, other, b)
	away(t, s, nameOf(kept))
	enough, calls := errors.New("enough"), 0
	if err := s.Aside(t.Context(), func(checkpoint.Aside) error { calls++; return enough }); err != enough || calls != 1 {
		t.Errorf("a listing that is ended: %v after %d calls", err, calls)
	}
	if left := p.Left(t); left != 0 {
		t.Errorf("%d things are left behind", left)
	}
}

// byAge: whoever writes or touches a blob keeps it from being set aside for a while.
func byAge(t *testing.T, p Place) {
	s := p.Open(t)
	b := Bytes(2, 1000)
	name := put(t, s, b)
	tried := func(what string, expect bool) {
		t.Helper()
		if done, err := s.SetAside(t.Context(), name, time.Hour); err != nil || done != expect {
			t.Errorf("%s: set aside %v, %v; want %v", what, done, err, expect)
		}
	}
	tried("fresh", false)
	p.Older(t, name, 59*time.Minute)
	tried("59 minutes old", false)
	p.Older(t, name, 2*time.Minute)
	if !stands(t, s, b) {
		t.Error("it does not stand")
	}
	tried("touched", false)
	p.Older(t, name, 2*time.Hour)
	put(t, s, b)
	tried("written again", false)
	p.Older(t, name, 2*time.Hour)
	want(t, s, b)
	tried("only read", true)
	// Brought back it is young.
	for _, a := range asides(t, s) {
		if err := s.BringBack(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	tried("brought back", false)
}

// touch: the answer has the order of the question, and a blob of another size is none.
func touch(t *testing.T, p Place) {
	s := p.Open(t)
	var ask []checkpoint.Info
	for i := range 300 {
		b := Bytes(uint64(i), 10+i)
		if i%3 > 0 {
			put(t, s, b)
		}
		ask = append(ask, checkpoint.Info{Name: nameOf(b), Size: int64(len(b))})
	}
	ask[1].Size++ // stands with another size
	away(t, s, ask[2].Name)
	ask = append(ask, ask[4]) // asked twice
	got, err := s.Touch(t.Context(), ask)
	if err != nil || len(got) != len(ask) {
		t.Fatalf("%d answers, %v", len(got), err)
	}
	for i := range 300 {
		if expect := i%3 > 0 && i > 2; got[i] != expect {
			t.Errorf("blob %d: %v, want %v", i, got[i], expect)
		}
	}
	if !got[300] {
		t.Error("asked twice, it is not there")
	}
	if got, err := s.Touch(t.Context(), nil); err != nil || len(got) != 0 {
		t.Errorf("nothing asked: %v, %v", got, err)
	}
	p.Damage(t, ask[5].Name, func(b []byte) []byte { return b[:len(b)-1] })
	if got, err := s.Touch(t.Context(), ask[5:6]); err != nil || got[0] {
		t.Errorf("cut short: %v, %v", got, err)
	}
}

// bringBack: by ticket, or by being read.
func bringBack(t *testing.T, p Place) {
	s, other := p.Open(t), p.Open(t)
	b := Bytes(4, 100_000)
	name := put(t, s, b)
	a := away(t, s, name)
	for range 2 { // the ticket is spent the second time
		if err := other.BringBack(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if !stands(t, s, b) || len(asides(t, s)) != 0 {
			t.Fatal("it is not back")
		}
	}
	a = away(t, s, name)
	want(t, other, b)
	if !stands(t, s, b) || len(asides(t, s)) != 0 {
		t.Error("read, and not back")
	}
	if err := s.Purge(t.Context(), a); err != nil || !stands(t, s, b) {
		t.Errorf("a ticket that is spent purges: %v", err)
	}
	// One that stands stays as it is.
	a = away(t, s, name)
	put(t, s, b)
	if err := s.BringBack(t.Context(), a); err != nil || !stands(t, s, b) || len(asides(t, s)) != 0 {
		t.Errorf("beside one that stands: %v, aside %v", err, asides(t, s))
	}
	want(t, s, b)
}

func purge(t *testing.T, p Place) {
	s := p.Open(t)
	b := Bytes(6, 70_000)
	name := put(t, s, b)
	a := away(t, s, name)
	for range 2 {
		if err := s.Purge(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.Get(t.Context(), name); !codes.Has(err, codes.BlobMissing) {
		t.Errorf("Get: %v", err)
	}
	if err := s.BringBack(t.Context(), a); err != nil || stands(t, s, b) || len(asides(t, s)) != 0 {
		t.Errorf("brought back after all: %v", err)
	}
	put(t, s, b)
	want(t, s, b)
}

// latePurge: a collector that was stopped before its purge removes what it judged, and nothing that came since under the same name.
func latePurge(t *testing.T, p Place) {
	s, late := p.Open(t), p.Open(t)
	b := Bytes(7, 5000)
	name := put(t, s, b)
	judged := away(t, s, name)
	put(t, s, b)
	again := away(t, s, name) // set aside a second time, rightly or wrongly
	if judged.Ticket == again.Ticket {
		t.Fatal("two settings aside have one ticket")
	}
	if err := late.Purge(t.Context(), judged); err != nil {
		t.Fatal(err)
	}
	got, err := get(t.Context(), s, name)
	if err != nil || !bytes.Equal(got, b) {
		t.Errorf("what was set aside since is gone: %v", err)
	}
	if err := late.Purge(t.Context(), judged); err != nil || !stands(t, s, b) {
		t.Errorf("a late purge takes what stands: %v", err)
	}
	if err := late.Purge(t.Context(), again); err != nil || !stands(t, s, b) {
		t.Errorf("a purge of what was brought back: %v", err)
	}
}
