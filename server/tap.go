package server

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/weirstream/weir/codes"
)

// Limits of a tap.
const (
	// tapStreams bounds the streams at one time.
	tapStreams = 4
	// tapRate is how many events a second a stream gets unless it asks for another number; maxTapRate is the most.
	tapRate    = 100
	maxTapRate = 1000
	// tapBuffer is how many events wait for a stream that is slow.
	tapBuffer = 256
	// tapText is how many bytes of a key or a value are shown.
	tapText = 4096
	// tapBeat is how often a stream says that it lives, and what it has left out.
	tapBeat = 5 * time.Second
)

// The kinds of events of a tap.
const (
	TapRecord      = "record"
	TapOutput      = "output"
	TapLate        = "late"
	TapQuarantined = "quarantined"
)

var tapKinds = []string{TapRecord, TapOutput, TapLate, TapQuarantined}

// TapEvent is something that happened to a record. Its data is what the record holds: it must be escaped where it is shown.
type TapEvent struct {
	Kind      string `json:"kind"`
	Run       string `json:"run"`
	Partition int32  `json:"partition"`
	// Position is "" for outputs.
	Position  string   `json:"position,omitempty"`
	Key       *TapText `json:"key,omitempty"`
	Value     *TapText `json:"value,omitempty"`
	EventTime string   `json:"event_time,omitempty"`
	EventID   string   `json:"event_id,omitempty"`
	// Reason and Detail are of what was set aside, Outputs of an output: a value for each, null where there is none.
	Reason  string     `json:"reason,omitempty"`
	Detail  string     `json:"detail,omitempty"`
	Outputs []*float64 `json:"outputs,omitempty"`
}

// TapText is bytes for a document: as text where they are text, as base64 otherwise.
type TapText struct {
	Text   string `json:"text,omitempty"`
	Base64 string `json:"base64,omitempty"`
	// Bytes is the whole length; when it is more than is shown, the rest is cut off.
	Bytes int `json:"bytes"`
}

// NewTapText makes a text of bytes; nil of nil.
func NewTapText(b []byte) *TapText {
	if b == nil {
		return nil
	}
	t := &TapText{Bytes: len(b)}
	if !utf8.Valid(b) {
		t.Base64 = base64.StdEncoding.EncodeToString(b[:min(len(b), tapText)])
		return t
	}
	cut := min(len(b), tapText)
	for cut < len(b) && cut > 0 && !utf8.RuneStart(b[cut]) {
		cut--
	}
	t.Text = string(b[:cut])
	return t
}

// Tap hands out what happens to whoever listens. Who publishes never waits: what a stream cannot take, or may not take by its rate, is left out
// and counted.
type Tap struct {
	open atomic.Int64

	mu      sync.Mutex
	streams []*tapStream
}

type tapStream struct {
	kinds     []string
	partition int64 // -1 is all
	bucket    bucket
	events    chan TapEvent
	dropped   int64
}

// bucket lets so many through a second, and after a pause so many at once.
type bucket struct {
	rate, left float64
	last       time.Time
}

func (b *bucket) take(now time.Time) bool {
	if d := now.Sub(b.last).Seconds(); d > 0 {
		b.left = min(b.rate, b.left+d*b.rate)
		b.last = now
	}
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

// Wants says whether anybody listens for a kind of events.
func (t *Tap) Wants(kind string) bool {
	if t == nil || t.open.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.streams, func(s *tapStream) bool { return slices.Contains(s.kinds, kind) })
}

// Publish hands out an event of a kind and partition. event is called when somebody may have it now, and makes it.
func (t *Tap) Publish(now time.Time, kind string, partition int32, event func() TapEvent) {
	if t == nil || t.open.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var made *TapEvent
	for _, s := range t.streams {
		if !slices.Contains(s.kinds, kind) || s.partition >= 0 && s.partition != int64(partition) {
			continue
		}
		if !s.bucket.take(now) {
			s.dropped++
			continue
		}
		if made == nil {
			e := event()
			e.Kind, e.Partition = kind, partition
			made = &e
		}
		select {
		case s.events <- *made:
		default:
			s.dropped++
		}
	}
}

func (t *Tap) add(s *tapStream) (ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.streams) >= tapStreams {
		return false
	}
	t.streams = append(t.streams, s)
	t.open.Store(int64(len(t.streams)))
	return true
}

func (t *Tap) remove(s *tapStream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.streams = slices.DeleteFunc(t.streams, func(x *tapStream) bool { return x == s })
	t.open.Store(int64(len(t.streams)))
}

// leftOut is what a stream was not given since it was asked last.
func (t *Tap) leftOut(s *tapStream) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := s.dropped
	s.dropped = 0
	return n
}

// newTapStream reads what a request asks for.
func newTapStream(r *http.Request) (*tapStream, error) {
	s := &tapStream{kinds: tapKinds, partition: -1, events: make(chan TapEvent, tapBuffer), bucket: bucket{rate: tapRate, left: tapRate}}
	for name, values := range r.URL.Query() {
		value := values[len(values)-1]
		switch name {
		case "kinds":
			s.kinds = strings.Split(value, ",")
			for _, k := range s.kinds {
				if !slices.Contains(tapKinds, k) {
					return nil, codes.New(codes.RequestInvalid, "%.40q is no kind of event; the kinds are %s", k, strings.Join(tapKinds, ", "))
				}
			}
		case "partition":
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil || n < 0 {
				return nil, codes.New(codes.RequestInvalid, "partition is a number from 0 on")
			}
			s.partition = n
		case "rate":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > maxTapRate {
				return nil, codes.New(codes.RequestInvalid, "rate is a number of events a second, from 1 to %d", maxTapRate)
			}
			s.bucket.rate, s.bucket.left = float64(n), float64(n)
		default:
			return nil, codes.New(codes.RequestInvalid, "there is no parameter %.40q; there are kinds, partition and rate", name)
		}
	}
	return s, nil
}

// tap streams events until the client goes or the server stops.
func (s *Server) tap(w http.ResponseWriter, r *http.Request) {
	t := s.daemon.Tap
	if t == nil {
		s.fail(w, r, problem{http.StatusForbidden, codeForbidden, "record data is not shown: the process was not started with --tap"})
		return
	}
	stream, err := newTapStream(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if !t.add(stream) {
		s.fail(w, r, problem{http.StatusTooManyRequests, codeTooMany, "too many taps are open"})
		return
	}
	defer t.remove(stream)
	s.cfg.Logger.Info("a tap is opened", "by", principalOf(r), "kinds", strings.Join(stream.kinds, ","))
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	control := http.NewResponseController(w)
	beat := time.NewTicker(tapBeat)
	defer beat.Stop()
	first := true
	for {
		control.SetWriteDeadline(time.Now().Add(10 * time.Second))
		if first {
			_, err = io.WriteString(w, ": open\n\n")
			first = false
		} else {
			select {
			case <-r.Context().Done():
				return
			case e := <-stream.events:
				err = writeEvent(w, e)
			case <-beat.C:
				_, err = fmt.Fprintf(w, "event: left-out\ndata: {\"events\":%d}\n\n", t.leftOut(stream))
			}
		}
		if err != nil || control.Flush() != nil {
			return
		}
	}
}

func writeEvent(w io.Writer, e TapEvent) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err // never: the type has nothing that cannot be written but a float that is none, which outputs are not
	}
	_, err = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e.Kind, data)
	return err
}
