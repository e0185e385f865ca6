package checkpointtest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
)

// Memory is a blob store in memory, for tests and simulations. Handles of it are the store itself.
type Memory struct {
	// Now is the store's clock; nil is time.Now, which is virtual in a synctest bubble.
	Now func() time.Time
	// Owned is what Owner answers.
	Owned string
	// Hook, unless nil, is called before every method, with its name ("Put", "Touch", …) and without a lock: a test fails, stops or does
	// something else there. Set it before use.
	Hook func(method string) error

	mu      sync.Mutex
	blobs   map[string]memoryBlob
	aside   map[string]memoryAside
	tickets int
	written int64
}

type memoryBlob struct {
	data     []byte
	modified time.Time
}

type memoryAside struct {
	memoryBlob
	name  string
	since time.Time
}

var _ checkpoint.Blobs = (*Memory)(nil)

// NewMemory makes an empty store that belongs to the store of that id.
func NewMemory(owner string) *Memory {
	return &Memory{Owned: owner, blobs: map[string]memoryBlob{}, aside: map[string]memoryAside{}}
}

// begin is what every method starts with. It locks the store unless it returns an error.
func (m *Memory) begin(ctx context.Context, method string, names ...string) error {
	for _, name := range names {
		if err := checkpoint.CheckName(name); err != nil {
			return err
		}
	}
	if m.Hook != nil {
		if err := m.Hook(method); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("checkpointtest: %s: %w", method, err)
	}
	m.mu.Lock()
	return nil
}

func (m *Memory) now() time.Time {
	if m.Now != nil {
		return m.Now()
	}
	return time.Now()
}

// Written is the number of bytes that Put has taken so far.
func (m *Memory) Written() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.written
}

// Damage changes the bytes of a blob that stands.
func (m *Memory) Damage(name string, change func([]byte) []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.blobs[name]
	b.data = change(bytes.Clone(b.data))
	m.blobs[name] = b
}

// Remove takes a blob away, as a person with a shell would.
func (m *Memory) Remove(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.blobs, name)
}

// Put implements checkpoint.Blobs.
func (m *Memory) Put(ctx context.Context, r io.Reader) (checkpoint.Info, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return checkpoint.Info{}, err
	}
	if err := m.begin(ctx, "Put"); err != nil {
		return checkpoint.Info{}, err
	}
	defer m.mu.Unlock()
	sum := sha256.Sum256(data)
	name := hex.EncodeToString(sum[:])
	m.blobs[name] = memoryBlob{data: data, modified: m.now()}
	m.written += int64(len(data))
	return checkpoint.Info{Name: name, Size: int64(len(data)), Modified: m.blobs[name].modified}, nil
}

// Get implements checkpoint.Blobs.
func (m *Memory) Get(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	if err := m.begin(ctx, "Get", name); err != nil {
		return nil, 0, err
	}
	defer m.mu.Unlock()
	b, ok := m.blobs[name]
	for ticket, a := range m.aside {
		if !ok && a.name == name {
			m.back(ticket)
			b, ok = m.blobs[name]
		}
	}
	if !ok {
		return nil, 0, codes.New(codes.BlobMissing, "there is no blob %s", name)
	}
	size := int64(len(b.data))
	return checkpoint.Verify(ctx, io.NopCloser(bytes.NewReader(b.data)), name, size), size, nil
}

// Has implements checkpoint.Blobs.
func (m *Memory) Has(ctx context.Context, name string) (bool, error) {
	if err := m.begin(ctx, "Has", name); err != nil {
		return false, err
	}
	defer m.mu.Unlock()
	_, ok := m.blobs[name]
	return ok, nil
}

// Touch implements checkpoint.Blobs.
func (m *Memory) Touch(ctx context.Context, blobs []checkpoint.Info) ([]bool, error) {
	names := make([]string, len(blobs))
	for i, b := range blobs {
		names[i] = b.Name
	}
	if err := m.begin(ctx, "Touch", names...); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	stands := make([]bool, len(blobs))
	for i, b := range blobs {
		have, ok := m.blobs[b.Name]
		if stands[i] = ok && int64(len(have.data)) == b.Size; stands[i] {
			have.modified = m.now()
			m.blobs[b.Name] = have
		}
	}
	return stands, nil
}

// List implements checkpoint.Blobs.
func (m *Memory) List(ctx context.Context, fn func(checkpoint.Info) error) error {
	if err := m.begin(ctx, "List"); err != nil {
		return err
	}
	var all []checkpoint.Info
	for _, name := range slices.Sorted(maps.Keys(m.blobs)) {
		all = append(all, checkpoint.Info{Name: name, Size: int64(len(m.blobs[name].data)), Modified: m.blobs[name].modified})
	}
	m.mu.Unlock()
	for _, i := range all {
		if err := fn(i); err != nil {
			return err
		}
	}
	return nil
}

// SetAside implements checkpoint.Blobs.
func (m *Memory) SetAside(ctx context.Context, name string, age time.Duration) (bool, error) {
	if err := m.begin(ctx, "SetAside", name); err != nil {
		return false, err
	}
	defer m.mu.Unlock()
	b, ok := m.blobs[name]
	if !ok || m.now().Sub(b.modified) < age {
		return false, nil
	}
	m.setAside(name, b)
	return true, nil
}

// Force sets a blob aside whatever its age: what a collector does whose look at the age is long ago.
func (m *Memory) Force(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b, ok := m.blobs[name]; ok {
		m.setAside(name, b)
	}
}

func (m *Memory) setAside(name string, b memoryBlob) {
	m.tickets++
	m.aside[fmt.Sprintf("%s.%d", name, m.tickets)] = memoryAside{memoryBlob: b, name: name, since: m.now()}
	delete(m.blobs, name)
}

// Aside implements checkpoint.Blobs.
func (m *Memory) Aside(ctx context.Context, fn func(checkpoint.Aside) error) error {
	if err := m.begin(ctx, "Aside"); err != nil {
		return err
	}
	var all []checkpoint.Aside
	for ticket, a := range m.aside {
		all = append(all, checkpoint.Aside{Info: checkpoint.Info{Name: a.name, Size: int64(len(a.data)), Modified: a.modified}, Since: a.since, Ticket: ticket})
	}
	m.mu.Unlock()
	slices.SortFunc(all, func(a, b checkpoint.Aside) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), a.Since.Compare(b.Since), strings.Compare(a.Ticket, b.Ticket))
	})
	for _, a := range all {
		if err := fn(a); err != nil {
			return err
		}
	}
	return nil
}

// BringBack implements checkpoint.Blobs.
func (m *Memory) BringBack(ctx context.Context, a checkpoint.Aside) error {
	if err := m.begin(ctx, "BringBack", a.Name); err != nil {
		return err
	}
	defer m.mu.Unlock()
	m.back(a.Ticket)
	return nil
}

func (m *Memory) back(ticket string) {
	a, ok := m.aside[ticket]
	if !ok {
		return
	}
	if _, stands := m.blobs[a.name]; !stands {
		m.blobs[a.name] = memoryBlob{data: a.data, modified: m.now()}
	}
	delete(m.aside, ticket)
}

// Purge implements checkpoint.Blobs.
func (m *Memory) Purge(ctx context.Context, a checkpoint.Aside) error {
	if err := m.begin(ctx, "Purge", a.Name); err != nil {
		return err
	}
	defer m.mu.Unlock()
	delete(m.aside, a.Ticket)
	return nil
}

// Owner implements checkpoint.Blobs.
func (m *Memory) Owner(ctx context.Context) (string, error) {
	if err := m.begin(ctx, "Owner"); err != nil {
		return "", err
	}
	defer m.mu.Unlock()
	return m.Owned, nil
}
