// A projection of spikes by events.
#pragma once

#include "chunks.h"
#include "event.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

constexpr int kSinkRows = 128;  // rows that a sink gets at once: 16 KB

// Brings the packed weights of the next chunk nearer, a few lines with each position.
struct Ahead {
  const char* start[kChunkRows];  // one run for each tap and tile
  int runs, lines, each;

  Ahead(const Layer& l, const Chunks& next, const int32_t* order, int halves, int positions) : runs(0) {
    const int64_t all = (int64_t)l.taps * l.cin;
    const int channels = min_int(64, l.cin - next.now.word * 64);
    lines = halves == 1 ? (channels + 1) / 2 : channels;
    each = pieces(lines, max_int(1, positions));
    for (int rank = 0; next.more() && rank < next.now.ranks; ++rank)
      for (int i = 0; i < next.now.tiles; ++i) {
        const int64_t row = packed_row(l.taps, l.cin, order[next.now.rank + rank], next.now.word * 64);
        start[runs++] = static_cast<const char*>(l.weights) + tile_bytes(all, l.bits) * (size_t)(next.now.tile + i) +
                        (halves == 1 ? row / 2 : row) * kTile;
      }
  }

  void fetch(int position) const {
    for (int line = position * each; line < min_int(lines, (position + 1) * each); ++line)
      for (int i = 0; i < runs; ++i) __builtin_prefetch(start[i] + line * kTile, 0, 2);
  }
};

struct Event {
  const Layer& l;
  const Spikes& s;
  int first, last, begin, end;  // input positions, output positions
  int halves, tiles;            // bytes are two halves
  int64_t rows;                 // output positions times steps
  uint8_t* expanded;            // [channel][tap][tile][half][64]
  uint16_t* sums;               // [tile][half][rows][64]
  int32_t* wide;                // [tile][rows][64], where int16 is not enough
  int32_t *counts, *events;     // sums of the values of an input row, and under the taps of an output row
  int count_stride;             // steps, padded
  const int32_t* numbers;       // of the inverse
  int32_t* made;

  Event(const Layer& layer, const Spikes& spikes, int first_, int last_, int begin_, int end_, Arena& arena)
      : l(layer), s(spikes), first(first_), last(last_), begin(begin_), end(end_),
        halves(is_nibbles(layer.bits) ? 1 : 2), tiles(padded(layer.cout) / kTile),
        rows((int64_t)(end_ - begin_) * spikes.steps) {
    expanded = arena.take<uint8_t>((size_t)64 * kChunkRows * kTile);
    sums = arena.take<uint16_t>((size_t)tiles * halves * rows * kTile);
    wide = l.narrow ? nullptr : arena.take<int32_t>((size_t)tiles * rows * kTile);
    count_stride = (int)round_up(s.steps, 4);
    counts = arena.take<int32_t>((size_t)(last - first + 1) * count_stride);
    events = arena.take<int32_t>((size_t)(end - begin) * count_stride);
    numbers = l.inverse;
    made = numbers || !l.tap_table ? nullptr : arena.take<int32_t>(inverse_numbers(l.positions, l.taps, s.positions));
  }

  // Weighted events of every input row, then those under the taps of every output row, four steps at a time.
  void count_all() {
    const uint64_t* words = s.data + (int64_t)first * s.steps * s.planes * s.words;
    int32_t* out = counts;
    std::memset(counts, 0, sizeof(int32_t) * (size_t)(last - first + 1) * count_stride);  // the last: a tap outside
    for (int p = first; p < last; ++p, out += count_stride)
      for (int t = 0; t < s.steps; ++t, words += s.planes * s.words) out[t] = count_values(words, s.planes, s.words);
    for (int t = 0; t < count_stride; t += 4) count_taps(counts + t, events + t, count_stride);
  }

  void count_taps(const int32_t* in, int32_t* out, const int64_t stride) const {
    typedef int32_t Four __attribute__((vector_size(16)));
    const int taps = l.taps, base = first, none = last, to = end;
    const int32_t* table = l.tap_table ? l.tap_table + (int64_t)begin * taps : nullptr;
    for (int p = begin; p < to; ++p, out += stride) {
      Four sum = table ? Four{} : load<Four>(in + (p - base) * stride);
      for (int tap = 0; table && tap < taps; ++tap) {
        const int from = *table++;
        sum += load<Four>(in + ((from < 0 ? none : from) - base) * stride);
      }
      store(out, sum);
    }
  }

  static int64_t channel_bytes(const Chunk& k, int halves) { return (int64_t)k.ranks * k.tiles * halves * kTile; }

  void expand(const Chunk& k, const int32_t* order) {
    const int64_t stride = channel_bytes(k, halves), all = (int64_t)l.taps * l.cin;
    const int channels = min_int(64, l.cin - k.word * 64);
    const bool pairs = halves == 1 && channels % 2 == 0;  // every run begins with the low half of a byte
    const uint8_t* start[kChunkRows];
    int64_t row[kChunkRows];
    int runs = 0;
    for (int rank = k.rank; rank < k.rank + k.ranks; ++rank)
      for (int i = 0; i < k.tiles; ++i, ++runs) {
        row[runs] = packed_row(l.taps, l.cin, order[rank], k.word * 64);
        start[runs] = static_cast<const uint8_t*>(l.weights) + tile_bytes(all, l.bits) * (k.tile + i);
        start[runs] += pairs ? row[runs] / 2 * kTile : 0;
      }
    if (pairs) return expand_pairs(start, runs, channels, expanded, stride);
    for (int i = 0; i < runs; ++i)
      halves == 1 ? expand_nibbles(start[i], row[i], channels, expanded + i * kTile, stride)
                  : expand_bytes(start[i], row[i], channels, expanded + i * 2 * kTile, stride);
  }

  // Events of input position p, to those of its readers that are in the chunk and in the range.
  void scatter_some(const Chunk& k, const Position& in, uint16_t* base, const int32_t* pairs, int readers) {
    const int across = k.tiles * halves;
    Slots slots;
    int used = 0;
    for (int i = 0; i < readers; ++i) {
      const int rank = pairs[2 * i] - k.rank, to = pairs[2 * i + 1];
      if (rank < 0 || rank >= k.ranks || to < begin || to >= end) continue;
      for (int j = 0; j < across; ++j) {
        slots.offset[used] = (int64_t)(rank * across + j) * kTile;
        slots.to[used] = base + (j * rows + (int64_t)to * s.steps) * kTile;
        if (++used == kSlots) scatter_all(in, slots, used), used = 0;
      }
    }
    if (used) scatter_all(in, slots, used);
  }

  // The common case, one row for a reader and readers one after another, without a look at each; false: not the case.
  // The loop is short: vectors would only make it slower.
  __attribute__((optimize("no-tree-vectorize"))) bool scatter_run(const Chunk& k, const Position& in, uint16_t* base,
                                                                  const int32_t* pairs, int readers) {
    const int rank = pairs[0] - k.rank;
    if (readers > kSlots || pairs[2 * readers - 2] - pairs[0] != readers - 1) return false;
    if (rank < 0 || rank + readers > k.ranks) return false;
    Slots slots;
    unsigned outside = 0;
    const int64_t row = (int64_t)s.steps * kTile;
    slots.offset[0] = (int64_t)rank * kTile;
    for (int i = 0; i < readers; ++i) {
      const int to = pairs[2 * i + 1];
      slots.to[i] = base + to * row;
      outside |= (unsigned)(to - begin) | (unsigned)(end - 1 - to);  // negative: the highest bit
    }
    if (outside >> 31) return false;
    scatter_of<true>(readers, in.planes)(in, slots);
    return true;
  }

  void run_chunk(const Chunk& k, const Inverse* inverse, const Ahead& ahead) {
    const int64_t step = (int64_t)s.planes * s.words, row = step * s.steps;
    Position in = {s.data + (int64_t)first * row + k.word, s.planes, s.steps, s.words, step, expanded,
                   channel_bytes(k, halves)};
    uint16_t* const base = sums + ((int64_t)k.tile * halves * rows - (int64_t)begin * s.steps) * kTile;
    const bool simple = inverse && inverse->single && k.tiles * halves == 1;
    for (int p = first; p < last; ++p, in.words += row) {
      const int32_t own[2] = {0, p};
      const int32_t* pairs = inverse ? inverse->pairs + 2 * (int64_t)inverse->start[p] : own;
      const int readers = inverse ? inverse->start[p + 1] - inverse->start[p] : 1;
      ahead.fetch(p - first);
      if (readers == 0 || (simple && scatter_run(k, in, base, pairs, readers))) continue;
      scatter_some(k, in, base, pairs, readers);
    }
  }

  // Sums of one tile at positions [b, e) as int16, channels in order, in place of `sums`; modulo 2^16.
  int16_t* finish_narrow(int tile, int b, int e) {
    uint16_t* const start = sums + ((int64_t)tile * halves * rows + (int64_t)(b - begin) * s.steps) * kTile;
    uint16_t* low = start;
    for (int p = b; p < e; ++p)
      for (int t = 0; t < s.steps; ++t, low += kTile) {
        const uint16_t less = (uint16_t)(weight_offset(l.bits) * events[(int64_t)(p - begin) * count_stride + t]);
        for (int v = 0; v < kTileVectors; ++v) {
          uint16_t *even = low + v * (kBytes / 2), *odd = even + 32;
          u16v o = load<u16v>(odd), e16 = load<u16v>(even) - (o << 8);
          if (halves == 2) {
            const u16v high = load<u16v>(odd + rows * kTile);
            e16 += (load<u16v>(even + rows * kTile) - (high << 8)) << 4;
            o += high << 4;
          }
          store(even, e16 - less);
          store(odd, o - less);
        }
      }
    return reinterpret_cast<int16_t*>(start);
  }

  // Sums of one tile and chunk into `wide`, and back to zero. A chunk has at most 9 * 64 * 7 events: they fit 16 bits.
  void drain(int tile) {
    int32_t* const all = wide + (int64_t)tile * rows * kTile;
    uint16_t* in = sums + (int64_t)tile * halves * rows * kTile;
    for (int h = 0; h < halves; ++h) {
      int32_t* out = all;
      for (int64_t r = 0; r < rows; ++r, in += kTile, out += kTile)
        for (int c = 0; c < 32; ++c) {
          const int32_t odd = in[32 + c], even = (uint16_t)(in[c] - (odd << 8));
          out[c] += even << (4 * h);
          out[32 + c] += odd << (4 * h);
          in[c] = in[32 + c] = 0;
        }
    }
  }

  void clear() {
    std::memset(sums, 0, (size_t)tiles * halves * rows * kTile * sizeof(uint16_t));
    for (int64_t r = 0; wide && r < tiles * rows; ++r) {
      const int64_t p = r % rows / s.steps, t = r % s.steps;
      const int32_t start = -weight_offset(l.bits) * events[p * count_stride + t];
      for (int c = 0; c < kTile; ++c) wide[r * kTile + c] = start;
    }
  }

  void add_chunks() {
    static const int32_t kOneTap[] = {1, 1, 0, 1, 0};  // classes, single, class_start, order
    const Inverse inverse(numbers ? numbers : kOneTap, l.taps, s.positions);
    Chunks chunks(inverse.class_start, inverse.classes, l.cin, tiles, halves);
    while (chunks.more()) {
      const Chunk now = chunks.now;
      expand(now, inverse.order);
      chunks.next();
      run_chunk(now, numbers ? &inverse : nullptr, Ahead(l, chunks, inverse.order, halves, last - first));
      for (int j = 0; wide && j < now.tiles; ++j) drain(now.tile + j);
    }
  }

  template <class Sink>
  void run(Sink& sink) {
    if (made) make_inverse(l.tap_table, l.positions, l.taps, s.positions, made), numbers = made;
    count_all();
    clear();
    add_chunks();
    const int block = max_int(1, kSinkRows / s.steps);
    for (int b = begin; b < end; b += block) {
      const int e = min_int(end, b + block);
      sink.open(b, e);
      for (int tile = 0; tile < tiles; ++tile) {
        const int64_t at = (tile * rows + (int64_t)(b - begin) * s.steps) * kTile;
        if (wide)
          sink.tile(tile * kTile, b, e, wide + at, s.steps);
        else
          sink.tile(tile * kTile, b, e, finish_narrow(tile, b, e), s.steps);
      }
      sink.close(b, e);
    }
  }
};

template <class Sink>
static void run_event(const Layer& l, const Spikes& s, Sink& sink, int begin, int end, int first, int last,
                      Arena& arena) {
  Event event(l, s, first, last, begin, end, arena);
  event.run(sink);
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
