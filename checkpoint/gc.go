package checkpoint

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// CleanUpLease is the lease under which blobs are removed, and under which pins are set.
const CleanUpLease = "checkpoint-gc"

// GC cleans up: it drops checkpoints that are not kept any longer, and removes blobs that no checkpoint refers to. Kept are pinned checkpoints,
// the last Keep of each run, and those younger than Grace.
//
// Dropping a pointer is a transaction under the lease of its run. The checkpoints of a run that somebody else owns just now are left to that
// owner (Saver.Keep), and reported. Blobs are removed under CleanUpLease, one collector at a time, and only from blobs that are marked as the
// store's own. A copy of a database has the identity of the original, and needs another folder.
//
// # Why nothing that is needed is lost
//
// A blob store need not be the database, so the removal of a blob and the look at the pointers are two steps, between which a collector can be
// stopped for any time, lose its lease, wake and go on. Removal is therefore two passes, each of which is harmless when it comes late:
//
//   - Pass one, SetAside: a blob that no pointer names, and that nobody has written or touched for Grace.
//   - Pass two, at least Grace later: what was set aside is looked at again. What a pointer names is brought back; the rest is purged.
//
// Savers count on a blob only if it stands when they touch or write it, and no earlier than MaxSave before their pointer. Grace is at least
// MinGrace, which is longer.
//
//  1. A late SetAside takes a blob that was touched since, and a pointer names it. It is not lost: whoever reads it brings it back, and so does
//     pass two, which finds the pointer, as 2 shows.
//  2. A purge follows a look at the pointers that came Grace after the blob was set aside. A pointer that names the blob was written before that
//     look: its saver found the blob standing, hence before it was set aside, hence wrote its pointer (or never) within MaxSave of then. So
//     the look sees it. Or its saver came after the setting aside: then the blob did not stand, the saver wrote it anew, and the purge
//     does not touch what stands.
//  3. A late purge removes what was set aside under one ticket, the one that it judged. If the same blob was written anew, or set aside once
//     more since, wrongly or not, that is another file or ticket.
//  4. Two passes at once, of a collector that woke late and the one that took over, do each other no harm by 1 to 3.
//  5. A manifest that cannot be read hides what it names, so nothing is removed then: CheckpointCorrupt.
//
// A saver that writes its pointer later than MaxSave after its first touch would break 2: it refuses to, and its lease, without which there is no
// pointer, has run out when its process was stopped for longer.
type GC struct {
	Store interface {
		control.Checkpoints
		control.Leases
	}
	Blobs Blobs
	// Keep is at least 1; 0 is DefaultKeep. Grace is at least MinGrace; 0 is DefaultGrace.
	Keep  int
	Grace time.Duration
	// Owner of the leases; "" is control.NewOwner(). TTL of 0 is DefaultTTL.
	Owner string
	TTL   time.Duration
	// Now tells ages, together with the store's clock; nil is time.Now.
	Now func() time.Time
}

// Collected is what a clean-up did, or what a dry run would do.
type Collected struct {
	// Dropped are pointers that are gone, Kept those that stand.
	Dropped, Kept []control.Pointer
	// Owned are runs whose checkpoints were left to the owner of the run, with the error that says who that is.
	Owned map[string]error
	// SetAside are blobs that nobody refers to and that count as gone now; Purged are those removed for good, BroughtBack those that a
	// pointer names, Waiting those whose grace has not passed.
	SetAside                     []Info
	Purged, BroughtBack, Waiting []Aside
	// Standing and Referenced are the number of blobs that stand, and of those that a checkpoint refers to.
	Standing, Referenced int
}

func (g *GC) defaults() (GC, error) {
	c := *g
	if c.Keep == 0 {
		c.Keep = DefaultKeep
	}
	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	if c.Owner == "" {
		c.Owner = control.NewOwner()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Keep < 1 || c.Grace < MinGrace {
		return c, codes.New(codes.ConfigInvalid, "a clean-up keeps at least 1 checkpoint of each run and has a grace of at least %s, since a checkpoint may take %s to be written; it was asked for %d and %s",
			MinGrace, MaxSave, c.Keep, c.Grace)
	}
	return c, nil
}

// Expendable are the checkpoints of one run that are not kept: not pinned, not among the last keep, and not younger than grace at now. Those
// without a time are young.
func Expendable(of []control.Pointer, keep int, grace time.Duration, now time.Time) []control.Pointer {
	sorted := slices.Clone(of)
	slices.SortFunc(sorted, func(a, b control.Pointer) int { return cmp.Compare(a.Epoch, b.Epoch) })
	var out []control.Pointer
	for _, p := range sorted[:max(len(sorted)-keep, 0)] {
		if !p.Pinned && !p.Created.IsZero() && now.Sub(p.Created) >= grace {
			out = append(out, p)
		}
	}
	return out
}

// byRun splits a list that is sorted by run.
func byRun(all []control.Pointer) (runs [][]control.Pointer) {
	for i, p := range all {
		if i == 0 || all[i-1].RunID != p.RunID {
			runs = append(runs, nil)
		}
		runs[len(runs)-1] = append(runs[len(runs)-1], p)
	}
	return runs
}

// DryRun says what Collect would do now, and changes nothing.
func (g *GC) DryRun(ctx context.Context) (*Collected, error) {
	c, err := g.defaults()
	if err != nil {
		return nil, err
	}
	if _, err := CheckOwner(ctx, c.Store, c.Blobs); err != nil {
		return nil, err
	}
	all, err := c.Store.ListPointers(ctx, "")
	if err != nil {
		return nil, err
	}
	out := &Collected{Owned: map[string]error{}}
	for _, run := range byRun(all) {
		gone := Expendable(run, c.Keep, c.Grace, c.Now())
		out.Dropped = append(out.Dropped, gone...)
		for _, p := range run {
			if !slices.ContainsFunc(gone, func(g control.Pointer) bool { return g.Epoch == p.Epoch }) {
				out.Kept = append(out.Kept, p)
			}
		}
	}
	return out, c.sweep(ctx, out, dry{}, c.Now())
}

// Collect cleans up. The error is the first that came; what was done before it is in the answer.
func (g *GC) Collect(ctx context.Context) (*Collected, error) {
	c, err := g.defaults()
	if err != nil {
		return nil, err
	}
	if _, err := CheckOwner(ctx, c.Store, c.Blobs); err != nil {
		return nil, err
	}
	out := &Collected{Owned: map[string]error{}}
	err = Hold(ctx, c.Store, CleanUpLease, c.Owner, c.TTL, func(ctx context.Context, l control.Lease) error {
		// Two clocks may tell ages, the database's and that of the machine with the folder; what is old is old by both.
		stored := l.Until.Add(-l.TTL)
		if err := c.drop(ctx, out, stored); err != nil {
			return err
		}
		now := c.Now()
		if stored.Before(now) {
			now = stored
		}
		return c.sweep(ctx, out, c.Blobs, now)
	})
	return out, err
}

// drop drops pointers, each run under its own lease. now is the store's.
func (g *GC) drop(ctx context.Context, out *Collected, now time.Time) error {
	all, err := g.Store.ListPointers(ctx, "")
	if err != nil {
		return err
	}
	for _, run := range byRun(all) {
		gone := Expendable(run, g.Keep, g.Grace, now)
		if len(gone) == 0 {
			continue
		}
		var epochs, dropped []uint64
		for _, p := range gone {
			epochs = append(epochs, p.Epoch)
		}
		id := run[0].RunID
		err := Hold(ctx, g.Store, control.StreamLease(id), g.Owner, g.TTL, func(ctx context.Context, l control.Lease) (err error) {
			dropped, err = g.Store.DropPointers(ctx, l, id, epochs)
			return err
		})
		if codes.Has(err, codes.LeaseHeld) {
			out.Owned[id] = err
			continue
		}
		if err != nil {
			return err
		}
		for _, p := range gone {
			if slices.Contains(dropped, p.Epoch) {
				out.Dropped = append(out.Dropped, p)
			}
		}
	}
	return nil
}

// remover is what of a blob store removes.
type remover interface {
	SetAside(ctx context.Context, name string, age time.Duration) (bool, error)
	BringBack(ctx context.Context, a Aside) error
	Purge(ctx context.Context, a Aside) error
}

// dry only says what it would do.
type dry struct{}

func (dry) SetAside(context.Context, string, time.Duration) (bool, error) { return true, nil }
func (dry) BringBack(context.Context, Aside) error                        { return nil }
func (dry) Purge(context.Context, Aside) error                            { return nil }

// sweep removes blobs. now is no later than the listing; the pointers are looked at after everything else was.
func (g *GC) sweep(ctx context.Context, out *Collected, do remover, now time.Time) error {
	var aside []Aside
	if err := g.Blobs.Aside(ctx, func(a Aside) error {
		aside = append(aside, a)
		return nil
	}); err != nil {
		return err
	}
	var old []Info
	if err := g.Blobs.List(ctx, func(i Info) error {
		out.Standing++
		if now.Sub(i.Modified) >= g.Grace {
			old = append(old, i)
		}
		return nil
	}); err != nil {
		return err
	}
	named, err := g.named(ctx, out, do)
	if err != nil {
		return err
	}
	out.Referenced = len(named)
	for _, a := range aside {
		if err := g.judge(ctx, out, do, a, named[a.Name], now); err != nil {
			return err
		}
	}
	return g.setAside(ctx, out, do, old, named)
}

// setAside sets aside what is old and not named.
func (g *GC) setAside(ctx context.Context, out *Collected, do remover, old []Info, named map[string]bool) error {
	for _, i := range old {
		if named[i.Name] {
			continue
		}
		done, err := do.SetAside(ctx, i.Name, g.Grace)
		if err != nil {
			return err
		}
		if done {
			out.SetAside = append(out.SetAside, i)
		}
	}
	return nil
}

// judge decides about what was set aside.
func (g *GC) judge(ctx context.Context, out *Collected, do remover, a Aside, named bool, now time.Time) error {
	switch {
	case named:
		out.BroughtBack = append(out.BroughtBack, a)
		return do.BringBack(ctx, a)
	case now.Sub(a.Since) < g.Grace:
		out.Waiting = append(out.Waiting, a)
		return nil
	}
	out.Purged = append(out.Purged, a)
	return do.Purge(ctx, a)
}

// named are the names of all blobs that checkpoints refer to, those of the manifests among them. A dry run leaves out what it would drop.
func (g *GC) named(ctx context.Context, out *Collected, do remover) (map[string]bool, error) {
	pointers := out.Kept
	if _, isDry := do.(dry); !isDry {
		var err error
		if pointers, err = g.Store.ListPointers(ctx, ""); err != nil {
			return nil, err
		}
		out.Kept = pointers
	}
	named := map[string]bool{}
	for _, p := range pointers {
		m, err := Load(ctx, g.Blobs, p)
		if err != nil {
			if c := codes.Of(err); c != nil {
				return nil, codes.New(c, "nothing was removed, since it is not known what a checkpoint refers to that cannot be read: %s", bare(err))
			}
			return nil, err
		}
		named[p.Manifest] = true
		for _, part := range m.Partitions {
			for _, r := range part.State {
				named[r.SHA256] = true
			}
		}
	}
	return named, nil
}
