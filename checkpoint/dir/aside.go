package dir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
)

// asideFolder holds what is set aside, beside the blobs. The name of a file there is its ticket: NAME.NANOSECONDS.RANDOM. The random part makes
// every setting aside another one, so that a removal that comes late meets nothing but what it judged. The time is one at which the file was in
// the folder already: it arrives with the time 0 and is given one afterwards, since a process may be stopped between a look at the clock and
// the rename, and a time from before the rename could let a purge come too early.
const asideFolder = "aside"

func ticketFor(name string, since int64, random string) string {
	return fmt.Sprintf("%s.%d.%s", name, since, random)
}

// stamp gives what has just been seen in the folder its time. "" means that somebody else was faster, or that it is gone.
func (s *Store) stamp(ticket string) (string, error) {
	parts := strings.Split(ticket, ".")
	stamped := ticketFor(parts[0], time.Now().UnixNano(), parts[2])
	if err := s.step("unstamped"); err != nil {
		return "", err
	}
	err := s.root.Rename(asideFolder+"/"+ticket, asideFolder+"/"+stamped)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return stamped, unwritable(err)
}

// parseTicket reads what ticketFor wrote. Nothing that could lead out of the folder is a ticket.
func parseTicket(ticket string) (name string, since time.Time, ok bool) {
	parts := strings.Split(ticket, ".")
	if len(parts) != 3 || checkpoint.CheckName(parts[0]) != nil || parts[2] == "" || strings.ContainsAny(ticket, "/\\\x00") {
		return "", time.Time{}, false
	}
	nanos, err := strconv.ParseInt(parts[1], 10, 64)
	return parts[0], time.Unix(0, nanos), err == nil
}

// checkAside says whether a is something that this package can have listed.
func checkAside(ctx context.Context, a checkpoint.Aside) (path string, err error) {
	if err := checkpoint.CheckName(a.Name); err != nil {
		return "", err
	}
	if name, _, ok := parseTicket(a.Ticket); !ok || name != a.Name {
		return "", codes.New(codes.NameInvalid, "%.120q is not the ticket of a blob that was set aside", a.Ticket)
	}
	return asideFolder + "/" + a.Ticket, ctx.Err()
}

// SetAside implements checkpoint.Blobs. The age is that of the file's last change. Between the look at it and the rename somebody may touch the
// blob, which cannot be excluded in a folder and does no harm, see checkpoint.GC: what is needed is brought back.
func (s *Store) SetAside(ctx context.Context, name string, age time.Duration) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	info, err := s.stat(name)
	if codes.Has(err, codes.BlobMissing) {
		return false, nil
	}
	if err != nil || time.Since(info.ModTime()) < age {
		return false, err
	}
	if err := s.root.Mkdir(asideFolder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, unwritable(err)
	}
	if err := s.step("judged"); err != nil {
		return false, err
	}
	ticket := ticketFor(name, 0, rand.Text())
	err = s.root.Rename(name, asideFolder+"/"+ticket)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, unwritable(err)
	}
	_, err = s.stamp(ticket)
	return true, err
}

// Aside implements checkpoint.Blobs. What has another name, or is no file of its own, is left out.
func (s *Store) Aside(ctx context.Context, fn func(checkpoint.Aside) error) error {
	tickets, err := s.tickets()
	if err != nil {
		return err
	}
	for _, ticket := range tickets {
		if err := ctx.Err(); err != nil {
			return err
		}
		info, err := s.root.Lstat(asideFolder + "/" + ticket)
		if err != nil || !info.Mode().IsRegular() {
			continue // gone since
		}
		name, since, _ := parseTicket(ticket)
		if since.UnixNano() == 0 {
			if ticket, err = s.stamp(ticket); err != nil {
				return err
			}
			if ticket == "" {
				continue
			}
			_, since, _ = parseTicket(ticket)
		}
		a := checkpoint.Aside{Info: checkpoint.Info{Name: name, Size: info.Size(), Modified: info.ModTime()}, Since: since, Ticket: ticket}
		if err := fn(a); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// tickets are those of what is set aside, in the order of names.
func (s *Store) tickets() ([]string, error) {
	entries, err := s.entriesOf(asideFolder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, codes.New(codes.StoreUnavailable, "what is set aside cannot be listed: %w", checkpoint.Bare(err))
	}
	var tickets []string
	for _, e := range entries {
		if _, _, ok := parseTicket(e.Name()); ok && e.Type().IsRegular() {
			tickets = append(tickets, e.Name())
		}
	}
	slices.Sort(tickets)
	return tickets, nil
}

// BringBack implements checkpoint.Blobs. The blob stands, durably, before it is no longer set aside: a process that is killed between the two
// leaves it in both places.
func (s *Store) BringBack(ctx context.Context, a checkpoint.Aside) error {
	path, err := checkAside(ctx, a)
	if err != nil {
		return err
	}
	return s.bringBack(path, a.Name)
}

func (s *Store) bringBack(path, name string) error {
	now := time.Now()
	if err := s.root.Chtimes(path, now, now); err != nil {
		return gone(err)
	}
	err := s.root.Link(path, name)
	switch {
	case errors.Is(err, fs.ErrExist):
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		// A file system without hard links. The rename may replace what was written since, which has the same content.
		if err := s.root.Rename(path, name); err != nil {
			return gone(err)
		}
	}
	if err := s.step("linked"); err != nil {
		return err
	}
	if err := s.syncFolder(); err != nil {
		return unwritable(err)
	}
	return gone(s.root.Remove(path))
}

// gone is the error of a file in the folder aside; one that is not there any more was removed or brought back by somebody else.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return unwritable(err)
}

// bringBackName brings a blob back that is set aside, under whatever ticket, and says whether there was one.
func (s *Store) bringBackName(name string) (bool, error) {
	tickets, err := s.tickets()
	if err != nil {
		return false, err
	}
	found := false
	for _, ticket := range tickets {
		if of, _, _ := parseTicket(ticket); of == name {
			found = true
			if err := s.bringBack(asideFolder+"/"+ticket, name); err != nil {
				return true, err
			}
		}
	}
	if found {
		return true, nil
	}
	// Somebody else may have brought it back since it was missed.
	_, err = s.stat(name)
	return err == nil, nil
}

// Purge implements checkpoint.Blobs.
func (s *Store) Purge(ctx context.Context, a checkpoint.Aside) error {
	path, err := checkAside(ctx, a)
	if err != nil {
		return err
	}
	return gone(s.root.Remove(path))
}

// Touch implements checkpoint.Blobs. What stands in the place of a blob and is no file of its own does not stand; a Put replaces it.
func (s *Store) Touch(ctx context.Context, blobs []checkpoint.Info) ([]bool, error) {
	for _, b := range blobs {
		if err := checkpoint.CheckName(b.Name); err != nil {
			return nil, err
		}
	}
	stands := make([]bool, len(blobs))
	for i, b := range blobs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		info, err := s.root.Lstat(b.Name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && (!info.Mode().IsRegular() || info.Size() != b.Size) {
			continue
		}
		if err != nil {
			return nil, codes.New(codes.StoreUnavailable, "blob %s cannot be looked at: %w", b.Name, checkpoint.Bare(err))
		}
		if err := s.step("seen"); err != nil {
			return nil, err
		}
		now := time.Now()
		err = s.root.Chtimes(b.Name, now, now)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, unwritable(err)
		}
		stands[i] = err == nil // if it was set aside since, it is written again
	}
	return stands, ctx.Err()
}
