package parquet_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	library "github.com/parquet-go/parquet-go"

	"github.com/weirstream/weir/sinks/file/parquet"
)

// row is a row as the library knows it. NaN is compared by its bits.
type row struct {
	Small int32    `parquet:"small"`
	Large int64    `parquet:"large"`
	At    int64    `parquet:"at,timestamp(nanosecond)"`
	Word  *string  `parquet:"word,optional"`
	Text  *string  `parquet:"text,optional"`
	Bytes *[]byte  `parquet:"bytes,optional"`
	Value *float64 `parquet:"value,optional"`
}

var columns = []parquet.Column{{"small", parquet.Int32}, {"large", parquet.Int64}, {"at", parquet.Moment}, {"word", parquet.Words}, {"text", parquet.Text},
	{"bytes", parquet.Bytes}, {"value", parquet.Double}}

func write(t testing.TB, w *parquet.Writer, rows []row) []byte {
	t.Helper()
	var out bytes.Buffer
	w.Begin(&out)
	for _, r := range rows {
		w.Int(0, int64(r.Small))
		w.Int(1, r.Large)
		w.Int(2, r.At)
		for c, s := range []*string{r.Word, r.Text} {
			if s == nil {
				w.Null(3 + c)
			} else {
				w.Text(3+c, []byte(*s))
			}
		}
		if r.Bytes == nil {
			w.Null(5)
		} else {
			w.Text(5, *r.Bytes)
		}
		if r.Value == nil {
			w.Null(6)
		} else {
			w.Double(6, *r.Value)
		}
		if err := w.Row(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func (r row) String() string {
	s := fmt.Sprint(r.Small, r.Large, r.At)
	for _, p := range []*string{r.Word, r.Text} {
		if p == nil {
			s += " null"
		} else {
			s += fmt.Sprintf(" %q", *p)
		}
	}
	if r.Bytes == nil {
		s += " null"
	} else {
		s += fmt.Sprintf(" %x", *r.Bytes)
	}
	if r.Value == nil {
		return s + " null"
	}
	return s + fmt.Sprintf(" %016x", math.Float64bits(*r.Value))
}

// read reads a file with the library, which knows nothing of ours.
func read(t testing.TB, file []byte) []row {
	t.Helper()
	r := library.NewGenericReader[row](bytes.NewReader(file))
	defer r.Close()
	out := make([]row, r.NumRows()+1)
	n, err := r.Read(out)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return out[:n]
}

func ptr[T any](v T) *T { return &v }

// some are rows of every kind of value, nulls with a probability of one in nulls for each kind of nullable column.
func some(rng *rand.Rand, n int, spread int64, nulls [4]int) []row {
	rows := make([]row, n)
	words, prefix := 1+rng.IntN(20), []string{"", "tick-", "Ærø 𝄞 "}[rng.IntN(3)]
	for i := range rows {
		r := row{Small: int32(rng.Uint32()), Large: int64(i) * spread, At: 1_767_225_600_000_000_000 + int64(rng.Uint64()%uint64(1+spread))}
		if rng.IntN(50) == 0 {
			r.Large, r.At = int64(rng.Uint64()), []int64{math.MinInt64, math.MaxInt64}[rng.IntN(2)]
		}
		there := func(c int) bool { return nulls[c] == 0 || rng.IntN(nulls[c]) > 0 }
		if there(0) {
			r.Word = ptr(fmt.Sprint(prefix, rng.IntN(words)))
		}
		if there(1) {
			r.Text = ptr(fmt.Sprintf("%s%0*d", prefix, rng.IntN(12), i))
		}
		if there(2) {
			b := make([]byte, rng.IntN(9))
			for k := range b {
				b[k] = byte(rng.Uint32())
			}
			r.Bytes = &b
		}
		if there(3) {
			r.Value = ptr([]float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.MaxFloat64, math.SmallestNonzeroFloat64, rng.NormFloat64()}[rng.IntN(7)])
		}
		rows[i] = r
	}
	return rows
}

// TestReadByAnother: what is written is read back by a library that shares no line with it, of every kind of value, of any number of them, by one writer
// that is used again and again.
func TestReadByAnother(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 1))
	w := parquet.NewWriter(columns)
	for round, n := range []int{0, 1, 2, 7, 8, 9, 31, 32, 33, 127, 128, 129, 130, 257, 1000, 64<<10 + 3} {
		for _, spread := range []int64{0, 1, 1 << 20, math.MaxInt64 / 4} {
			nulls := [4]int{rng.IntN(4), rng.IntN(4), rng.IntN(4), rng.IntN(4)}
			want := some(rng, n, spread, nulls)
			file := write(t, w, want)
			got := read(t, file)
			if len(got) != n {
				t.Fatalf("round %d: %d rows of %d", round, len(got), n)
			}
			for i := range want {
				if got[i].String() != want[i].String() {
					t.Fatalf("round %d, row %d of %d: %v, want %v (nulls %v)", round, i, n, got[i], want[i], nulls)
				}
			}
			if rows, err := parquet.Rows(bytes.NewReader(file), int64(len(file))); err != nil || rows != int64(n) {
				t.Fatalf("the footer says %d, %v", rows, err)
			}
			if again := write(t, parquet.NewWriter(columns), want); !bytes.Equal(again, file) {
				t.Fatalf("the same %d rows are other bytes", n)
			}
			if n > 1000 {
				break
			}
		}
	}
}

// TestOfItself: the schema, the statistics, and that a group ends where it should.
func TestOfItself(t *testing.T) {
	t.Parallel()
	const n = 100_000
	rows := make([]row, n)
	for i := range rows {
		rows[i] = row{Small: -5, Large: int64(i), At: -int64(i), Value: ptr(math.NaN())}
		if i%10 == 0 {
			rows[i].Value = nil
		}
	}
	file := write(t, parquet.NewWriter(columns), rows)
	f, err := library.OpenFile(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := f.Schema().String(), `message rows {
	required int32 small (INT(32,true));
	required int64 large (INT(64,true));
	required int64 at (TIMESTAMP(isAdjustedToUTC=true,unit=NANOS));
	optional binary word (STRING);
	optional binary text (STRING);
	optional binary bytes;
	optional double value;
}`; got != want {
		t.Errorf("the schema is %s, want %s", got, want)
	}
	if groups := f.Metadata().RowGroups; len(groups) != 2 || groups[0].NumRows != 64<<10 || f.NumRows() != n {
		t.Errorf("%d rows in %d groups", f.NumRows(), len(groups))
	}
	second := f.Metadata().RowGroups[1].Columns
	for c, want := range map[int][2]int64{1: {64 << 10, n - 1}, 2: {1 - n, -64 << 10}} {
		s := second[c].MetaData.Statistics
		if got := [2]int64{int64(binary.LittleEndian.Uint64(s.MinValue)), int64(binary.LittleEndian.Uint64(s.MaxValue))}; got != want {
			t.Errorf("column %d lies between %v, want %v", c, got, want)
		}
	}
	if s := second[6].MetaData.Statistics; fmt.Sprint(s.NullCount) != "3446" || s.MinValue != nil {
		t.Errorf("of the doubles it says %+v", s)
	}
}

// TestCutShort: a file that lacks any of its bytes at the end is none, and one that is damaged in a page is noticed by its checksum.
func TestCutShort(t *testing.T) {
	t.Parallel()
	file := write(t, parquet.NewWriter(columns), some(rand.New(rand.NewPCG(1, 1)), 40, 5, [4]int{3, 3, 3, 3}))
	for n := range len(file) {
		if rows, err := parquet.Rows(bytes.NewReader(file[:n]), int64(n)); err == nil {
			t.Fatalf("%d bytes of %d are taken for a file of %d rows", n, len(file), rows)
		}
	}
	for at := range len(file) - 8 {
		broken := slices.Clone(file)
		broken[at] ^= 0x55
		_, _ = parquet.Rows(bytes.NewReader(broken), int64(len(broken))) // it may be wrong, but does not panic or hang
	}
}
