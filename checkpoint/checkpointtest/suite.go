package checkpointtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
)

// Place is one empty store for a test.
type Place struct {
	// Open returns a handle on the store, any number of times, as different processes would.
	Open func(t testing.TB) checkpoint.Blobs
	// Damage changes the bytes of a stored blob behind the store's back.
	Damage func(t testing.TB, name string, change func([]byte) []byte)
	// Older makes a blob that stands older by d, as if it had been written or touched that much earlier.
	Older func(t testing.TB, name string, d time.Duration)
	// Left counts what the store keeps beside whole blobs and those set aside: temporary files and the like.
	Left func(t testing.TB) int
	// Owner is what Owner has to answer.
	Owner string
}

// Run is the suite. It makes a place for every test.
func Run(t *testing.T, place func(t testing.TB) Place) {
	for name, test := range map[string]func(t *testing.T, p Place){
		"round trip":               roundTrip,
		"again and again":          again,
		"names":                    names,
		"missing":                  missing,
		"list":                     list,
		"owner":                    owner,
		"set aside":                setAside,
		"set aside by age":         byAge,
		"touch":                    touch,
		"brought back":             bringBack,
		"purged":                   purge,
		"a late purge":             latePurge,
		"damage":                   damage,
		"a reader that fails":      readerFails,
		"cancelled":                cancelled,
		"a listing that is ended":  listEnds,
		"larger than is wanted":    limit,
		"a damaged blob is healed": heal,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, place(t))
		})
	}
}

// Bytes are n bytes drawn from a seed.
func Bytes(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func nameOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func put(t testing.TB, s checkpoint.Blobs, b []byte) string {
	t.Helper()
	info, err := checkpoint.PutBytes(t.Context(), s, b)
	if err != nil {
		t.Fatal(err)
	}
	if info.Name != nameOf(b) || info.Size != int64(len(b)) {
		t.Fatalf("Put of %d bytes gives %+v, want the name %s", len(b), info, nameOf(b))
	}
	return info.Name
}

func get(ctx context.Context, s checkpoint.Blobs, name string) ([]byte, error) {
	r, size, err := s.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err == nil && int64(len(b)) != size {
		return b, fmt.Errorf("%d bytes were announced and %d came", size, len(b))
	}
	return b, err
}

func want(t testing.TB, s checkpoint.Blobs, b []byte) {
	t.Helper()
	got, err := get(t.Context(), s, nameOf(b))
	if err != nil || !bytes.Equal(got, b) {
		t.Errorf("Get of %d bytes: %d bytes, %v", len(b), len(got), err)
	}
}

// sizes around the edges of what is read at once.
var sizes = []int{0, 1, 2, 100, 65535, 65536, 65537, 131071, 131072, 131073, 1 << 20}

func roundTrip(t *testing.T, p Place) {
	s, other := p.Open(t), p.Open(t)
	for i, n := range sizes {
		b := Bytes(uint64(i), n)
		name := put(t, s, b)
		want(t, other, b)
		r, _, err := other.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		// Whatever pieces it is read in.
		if got, err := io.ReadAll(iotest.OneByteReader(io.LimitReader(r, 70_000))); err != nil || !bytes.Equal(got, b[:min(n, 70_000)]) {
			t.Errorf("%d bytes one by one: %d, %v", n, len(got), err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if _, err := r.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d bytes: a closed blob reads on", n)
		}
		if ref := checkpoint.Ref(name); ref != "sha256:"+name {
			t.Errorf("reference %s", ref)
		}
	}
	if left := p.Left(t); left != 0 {
		t.Errorf("%d things are left behind", left)
	}
}

// again: the same bytes and others, from several goroutines and handles at once.
func again(t *testing.T, p Place) {
	var wg sync.WaitGroup
	for i := range 8 {
		s := p.Open(t)
		wg.Go(func() {
			for j := range 6 {
				b := Bytes(uint64(j), 10_000)
				if info, err := checkpoint.PutBytes(t.Context(), s, b); err != nil || info.Name != nameOf(b) {
					t.Errorf("writer %d: %+v, %v", i, info, err)
				}
				if got, err := get(t.Context(), s, nameOf(b)); err != nil || !bytes.Equal(got, b) {
					t.Errorf("writer %d reads back %d bytes, %v", i, len(got), err)
				}
			}
		})
	}
	wg.Wait()
	if got := listed(t, p.Open(t)); len(got) != 6 {
		t.Errorf("%d blobs are listed, want 6: %v", len(got), got)
	}
	if left := p.Left(t); left != 0 {
		t.Errorf("%d things are left behind", left)
	}
}

// names: whatever is not 64 lower-case hex digits is refused by every method, before anything is looked at.
func names(t *testing.T, p Place) {
	s := p.Open(t)
	good := put(t, s, []byte("x"))
	for _, bad := range []string{
		"", "x", ".", "..", "/", "../" + good, "/etc/passwd", strings.Repeat("a", 63), strings.Repeat("a", 65), strings.ToUpper(good), "sha256:" + good, good + "\x00", good + "\n",
		good[:63] + "g", good[:63] + "/", "./" + good[:62], strings.Repeat("../", 21) + "x", "%2e%2e%2f" + good[:55], strings.Repeat("é", 32), "\xff" + good[1:], strings.Repeat("０", 64),
	} {
		_, _, getErr := s.Get(t.Context(), bad)
		_, hasErr := s.Has(t.Context(), bad)
		_, refErr := checkpoint.ParseRef("sha256:" + bad)
		_, touchErr := s.Touch(t.Context(), []checkpoint.Info{{Name: good, Size: 1}, {Name: bad}})
		_, asideErr := s.SetAside(t.Context(), bad, 0)
		for what, err := range map[string]error{"Get": getErr, "Has": hasErr, "Touch": touchErr, "SetAside": asideErr, "ParseRef": refErr,
			"BringBack": s.BringBack(t.Context(), checkpoint.Aside{Info: checkpoint.Info{Name: bad}, Ticket: "x"}),
			"Purge":     s.Purge(t.Context(), checkpoint.Aside{Info: checkpoint.Info{Name: bad}, Ticket: "x"})} {
			if !codes.Has(err, codes.NameInvalid) {
				t.Errorf("%s of %q: %v, want NAME_INVALID", what, bad, err)
			}
		}
	}
	for _, bad := range []string{"", good, "md5:" + good, "SHA256:" + good, "sha256:"} {
		if _, err := checkpoint.ParseRef(bad); !codes.Has(err, codes.NameInvalid) {
			t.Errorf("ParseRef(%q): %v", bad, err)
		}
	}
	if name, err := checkpoint.ParseRef("sha256:" + good); err != nil || name != good {
		t.Errorf("ParseRef: %q, %v", name, err)
	}
}

func missing(t *testing.T, p Place) {
	s := p.Open(t)
	name := nameOf([]byte("never written"))
	if _, _, err := s.Get(t.Context(), name); !codes.Has(err, codes.BlobMissing) || !strings.Contains(err.Error(), name) {
		t.Errorf("Get: %v", err)
	}
	if has, err := s.Has(t.Context(), name); has || err != nil {
		t.Errorf("Has: %v, %v", has, err)
	}
}

func listed(t testing.TB, s checkpoint.Blobs) []string {
	t.Helper()
	var got []string
	if err := s.List(t.Context(), func(i checkpoint.Info) error {
		got = append(got, i.Name)
		if has, err := s.Has(t.Context(), i.Name); !has || err != nil {
			t.Errorf("%s is listed and not there: %v", i.Name, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

func list(t *testing.T, p Place) {
	s := p.Open(t)
	if got := listed(t, s); len(got) != 0 {
		t.Errorf("an empty store lists %v", got)
	}
	var all []string
	sizeOf := map[string]int64{}
	for i := range 30 {
		b := Bytes(uint64(i), i)
		name := put(t, s, b)
		all, sizeOf[name] = append(all, name), int64(i)
	}
	slices.Sort(all)
	if got := listed(t, s); !slices.Equal(got, all) {
		t.Errorf("listed %v, want %v", got, all)
	}
	if err := s.List(t.Context(), func(i checkpoint.Info) error {
		if i.Size != sizeOf[i.Name] || i.Modified.IsZero() {
			t.Errorf("%+v, want %d bytes", i, sizeOf[i.Name])
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func listEnds(t *testing.T, p Place) {
	s := p.Open(t)
	put(t, s, []byte("a"))
	put(t, s, []byte("b"))
	enough, calls := errors.New("enough"), 0
	err := s.List(t.Context(), func(checkpoint.Info) error { calls++; return enough })
	if err != enough || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// damage: one flipped bit anywhere, a missing end, bytes too many: never the whole blob, always BLOB_CORRUPT.
func damage(t *testing.T, p Place) {
	s := p.Open(t)
	for _, n := range []int{1, 100, 65536, 65537, 200_000} {
		b := Bytes(uint64(n), n)
		name := put(t, s, b)
		changes := map[string]func([]byte) []byte{
			"cut short": func(b []byte) []byte { return b[:len(b)-1] },
			"emptied":   func([]byte) []byte { return nil },
			"longer":    func(b []byte) []byte { return append(b, 0) },
			"doubled":   func(b []byte) []byte { return append(b, b...) },
		}
		for _, at := range []int{0, n / 2, n - 1} {
			changes[fmt.Sprintf("byte %d flipped", at)] = func(b []byte) []byte { b[at] ^= 1 << (at % 8); return b }
		}
		for what, change := range changes {
			size := 0
			p.Damage(t, name, func(stored []byte) []byte {
				damaged := change(bytes.Clone(stored))
				size = len(damaged)
				return damaged
			})
			got, err := get(t.Context(), s, name)
			if !codes.Has(err, codes.BlobCorrupt) || !strings.Contains(err.Error(), name) {
				t.Errorf("%d bytes, %s: %v, want BLOB_CORRUPT", n, what, err)
			}
			if size > 0 && len(got) >= size {
				t.Errorf("%d bytes, %s: all %d bytes came before the verdict", n, what, size)
			}
			p.Damage(t, name, func([]byte) []byte { return b })
		}
		want(t, s, b)
	}
}

// heal: writing the right bytes again puts a damaged blob right.
func heal(t *testing.T, p Place) {
	s := p.Open(t)
	b := Bytes(3, 1000)
	name := put(t, s, b)
	p.Damage(t, name, func(b []byte) []byte { return append([]byte("no"), b[2:]...) })
	if _, err := get(t.Context(), s, name); !codes.Has(err, codes.BlobCorrupt) {
		t.Fatalf("damaged: %v", err)
	}
	put(t, s, b)
	want(t, s, b)
}

// readerFails: what the caller's reader says comes back as it is, and nothing is left.
func readerFails(t *testing.T, p Place) {
	s := p.Open(t)
	own := errors.New("the caller's own")
	for _, n := range []int{0, 10, 100_000} {
		_, err := s.Put(t.Context(), io.MultiReader(bytes.NewReader(Bytes(1, n)), iotest.ErrReader(own)))
		if err != own {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
	if got := listed(t, s); len(got) != 0 {
		t.Errorf("listed %v", got)
	}
	if left := p.Left(t); left != 0 {
		t.Errorf("%d things are left behind", left)
	}
}

func cancelled(t *testing.T, p Place) {
	s := p.Open(t)
	b := Bytes(5, 300_000)
	name := put(t, s, b)
	ctx, cancel := context.WithCancel(t.Context())
	r, _, err := s.Get(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if got, err := io.ReadAll(r); !errors.Is(err, context.Canceled) || len(got) >= len(b)-10 {
		t.Errorf("Get goes on: %d bytes, %v", len(got), err)
	}
	_, putErr := s.Put(ctx, bytes.NewReader([]byte("other")))
	_, hasErr := s.Has(ctx, name)
	_, touchErr := s.Touch(ctx, []checkpoint.Info{{Name: name, Size: int64(len(b))}})
	_, asideErr := s.SetAside(ctx, name, 0)
	for what, err := range map[string]error{
		"Put": putErr, "Has": hasErr, "Touch": touchErr, "SetAside": asideErr,
		"List":  s.List(ctx, func(checkpoint.Info) error { t.Error("List goes on"); return nil }),
		"Aside": s.Aside(ctx, func(checkpoint.Aside) error { t.Error("Aside goes on"); return nil }),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	}
	want(t, s, b)
	if left := p.Left(t); left != 0 {
		t.Errorf("%d things are left behind", left)
	}
}

func limit(t *testing.T, p Place) {
	s := p.Open(t)
	b := Bytes(1, 100)
	name := put(t, s, b)
	if got, err := checkpoint.GetBytes(t.Context(), s, name, 100); err != nil || !bytes.Equal(got, b) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := checkpoint.GetBytes(t.Context(), s, name, 99); !codes.Has(err, codes.LimitReached) {
		t.Errorf("%v, want LIMIT_REACHED", err)
	}
}
