// A projection of spikes by events.
#pragma once

#include "event_counts.h"
#include "event_sums.h"
#include "expanded.h"
#include "pieces.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

constexpr int kSinkRows = 128;  // rows that a sink gets at once: 16 KB
#if !defined(PTQ_SUM_BYTES)
#define PTQ_SUM_BYTES (1 << 20)
#endif
constexpr int64_t kSumBytes =
    PTQ_SUM_BYTES;  // sums of the images that share expanded weights stay in the second-level cache

struct Event {
  const Layer& l;
  const Spikes& s;  // of image 0
  const Images& images;
  int first, last, begin, end;  // input positions, output positions
  Span span;
  int halves, tiles;         // bytes are two halves
  int64_t rows, in_rows;     // output and input positions times steps
  int together;              // images at once: `sums` and so on hold so many, one after the other
  uint8_t* expanded;         // a chunk, where the layer has not all of them
  uint16_t* sums;            // [tile][half][rows][64]
  int32_t* wide;             // [tile][rows][64], where int16 is not enough
  int32_t *counts, *events;  // sums of the values of an input row, and under the taps of an output row
  OwnRuns own;               // where the layer has no window
  Runs runs;
  Piece* kept;            // the pieces of the current class
  int room, pieces_kept;  // how many there can be, and are; -1: too many, they are cut anew for every chunk
  bool few;               // events

  Event(const Layer& layer, const Spikes& spikes, const Images& images_, int first_, int last_, int begin_, int end_,
        Arena& arena)
      : l(layer),
        s(spikes),
        images(images_),
        first(first_),
        last(last_),
        begin(begin_),
        end(end_),
        span{first_, last_, begin_, end_},
        halves(halves_of(layer)),
        tiles(padded(layer.cout) / kTile),
        rows((int64_t)(end_ - begin_) * spikes.steps),
        in_rows((int64_t)(last_ - first_) * spikes.steps),
        together(max_int(1, (int)(kSumBytes / (sums_each() * 2 + 1)))),
        own(begin_, end_),
        runs(l.runs ? l.runs : own.numbers, l.taps) {
    together = min_int(together, images.count);
    expanded = l.expanded ? nullptr : arena.take<uint8_t>((size_t)64 * kChunkRows * kTile);
    sums = arena.take<uint16_t>((size_t)(together * sums_each()));
    wide = l.narrow ? nullptr : arena.take<int32_t>((size_t)(together * wide_each()));
    counts = arena.take<int32_t>((size_t)(together * in_rows));
    events = arena.take<int32_t>((size_t)(together * rows));
    room = 2 * most_pieces(runs, halves, last - first);  // runs at the border of a range are cut
    kept = arena.take<Piece>((size_t)room);
  }

  int64_t sums_each() const { return (int64_t)tiles * halves * rows * kTile; }
  int64_t wide_each() const { return (int64_t)tiles * rows * kTile; }

  bool all_inside() const { return end - begin >= l.positions; }

  // The runs of a chunk as pieces, one by one to `each`.
  template <class Each>
  void cut(const Chunk& k, const Each& each) const {
    for (const int32_t* at = runs.begin(k.tap_class); at < runs.end(k.tap_class);) {
      Run run(at);
      at = run.end();
      for (int n = 0; n < run.repeats; ++n, run.go_on())
        for (int i = 0; span.meets(run) && i < run.count;) i = cut_from(k, run, i, each);
    }
  }

  // Positions of a run from i on that have the same readers in the range; where they end.
  template <class Each>
  int cut_from(const Chunk& k, const Run& run, int i, const Each& each) const {
    const int across = k.tiles * halves;
    const int64_t step = (int64_t)s.planes * s.words, position = step * s.steps;
    const int stop = all_inside() ? run.count : same_readers(run, i);
    Piece piece = {};
    piece.in.count = stop - i;
    piece.in.planes = s.planes;
    piece.in.steps = s.steps;
    piece.in.plane = s.words;
    piece.in.step = step;
    piece.in.position = position * run.step;
    piece.in.out = (int64_t)run.out_step * s.steps * kTile;
    piece.in.channel = channel_bytes(k, halves);
    piece.words = s.data + (run.first + (int64_t)i * run.step) * position;
    for (int r = 0; r < run.readers; ++r) {
      const int rank = run.rank(r) - k.rank, to = run.to(r) + i * run.out_step;
      if (rank < 0 || rank >= k.ranks || to < begin || to >= end) continue;
      for (int j = 0; j < across; ++j) {
        piece.slots.offset[piece.used] = (int64_t)(rank * across + j) * kTile;
        piece.slots.to[piece.used] = sums + (j * rows + (int64_t)(to - begin) * s.steps) * kTile;
        if (++piece.used == kSlots) send(piece, each);
      }
    }
    if (piece.used) send(piece, each);
    return stop;
  }

  template <class Each>
  void send(Piece& piece, const Each& each) const {
    piece.scatter = few ? slide_for(piece.in, piece.slots, piece.used) : nullptr;
    if (!piece.scatter) piece.scatter = scatter_for(piece.slots, piece.used, s.planes);
    each(piece);
    piece.used = 0;
  }

  // The first position behind i whose readers in the range are others.
  int same_readers(const Run& run, int i) const {
    int stop = run.count;
    for (int r = 0; r < run.readers; ++r) {
      int from, until;
      span.inside(run, run.to(r), &from, &until);
      if (i < from)
        stop = min_int(stop, from);
      else if (i < until)
        stop = min_int(stop, until);
    }
    return stop;
  }

  // Packed weights of a chunk, from its first to its last tap.
  Ahead ahead_of(const Chunk& k) const {
    int low = l.taps - 1, high = 0;
    for (int rank = k.rank; rank < k.rank + k.ranks; ++rank)
      low = min_int(low, runs.order[rank]), high = max_int(high, runs.order[rank]);
    const int width = min_int(64, l.cin - k.word * 64);
    const int64_t from = packed_row(l.taps, l.cin, low, k.word * 64), rows_of = (int64_t)(high - low + 1) * width;
    Ahead ahead;
    ahead.set(static_cast<const char*>(l.weights) + tile_bytes((int64_t)l.taps * l.cin, l.bits) * (size_t)k.tile +
                  tile_bytes(from, l.bits),
              (int64_t)tile_bytes(rows_of, l.bits), k.tiles, (int64_t)tile_bytes((int64_t)l.taps * l.cin, l.bits),
              pieces_kept >= 0 ? pieces_kept : last - first);
    return ahead;
  }

  // Events of image `image`, whose sums are those of place `place`; `rows` are the weights of the chunk.
  void run_chunk(const Chunk& k, const uint8_t* rows, int image, int place, Ahead ahead) {
    const int64_t from = k.word + image * images.in / 8,
                  to = place * sums_each() + (int64_t)k.tile * halves * this->rows * kTile;
    const auto add = [&](Piece& piece) {
      ahead.some();
      piece.in.rows = rows;
      piece.scatter(piece.in, piece.slots, piece.words + from, to);
    };
    if (pieces_kept < 0) return cut(k, add);
    for (int i = 0; i < pieces_kept; ++i) add(kept[i]);
  }

  // The same pieces serve all words, and all tiles of chunks with equal taps.
  void keep_pieces(const Chunk& k) {
    int found = 0;
    cut(k, [&](const Piece& piece) {
      if (found < room) kept[found] = piece;
      ++found;
    });
    pieces_kept = found <= room ? found : -1;
  }

  // Sums of one tile at positions [b, e) as int16, channels in order, in place of `sums`; modulo 2^16.
  int16_t* finish_narrow(int place, int tile, int b, int e) {
    const int64_t before = (int64_t)(b - begin) * s.steps, n = (int64_t)(e - b) * s.steps;
    uint16_t* const start = sums + place * sums_each() + ((int64_t)tile * halves * rows + before) * kTile;
    const int32_t* const counted = events + place * rows + before;
    const uint16_t offset = (uint16_t)weight_offset(l.bits);
    halves == 1 ? finish_rows<1>(start, rows, counted, n, offset) : finish_rows<2>(start, rows, counted, n, offset);
    return reinterpret_cast<int16_t*>(start);
  }

  // Sums of one tile and chunk into `wide`.
  void drain(int place, int tile) {
    uint16_t* in = sums + place * sums_each() + (int64_t)tile * halves * rows * kTile;
    for (int h = 0; h < halves; ++h, in += rows * kTile)
      drain_rows(in, rows, 4 * h, wide + place * wide_each() + (int64_t)tile * rows * kTile);
  }

  void clear(int place) {
    std::memset(sums + place * sums_each(), 0, (size_t)sums_each() * sizeof(uint16_t));
    if (!wide) return;
    int32_t* out = wide + place * wide_each();
    for (int64_t r = 0; r < tiles * rows; ++r, out += kTile) {
      const int32_t start = -weight_offset(l.bits) * events[place * rows + r % rows];
      for (int c = 0; c < kTile; ++c) out[c] = start;
    }
  }

  // Images [from, from + count) of the batch.
  void add_chunks(int from, int count) {
    Chunks chunks(runs.class_start, runs.classes, l.cin, tiles, halves);
    Chunk form = {};
    form.tap_class = -1;  // like no chunk
    const uint8_t* resident = l.expanded;
    while (chunks.more()) {
      const Chunk now = chunks.now;
      if (now.tap_class != form.tap_class || now.rank != form.rank || now.tiles != form.tiles)
        keep_pieces(now), form = now;
      if (!l.expanded) expand_chunk(l, now, runs.order, expanded);
      const uint8_t* weights = l.expanded ? resident : expanded;
      resident += chunk_bytes(l, now);
      chunks.next();
      const bool ahead = chunks.more() && !l.expanded;
      for (int i = 0; i < count; ++i) {
        run_chunk(now, weights, from + i, i, i == 0 && ahead ? ahead_of(chunks.now) : Ahead());
        for (int j = 0; wide && j < now.tiles; ++j) drain(i, now.tile + j);
      }
    }
  }

  // A group of images whose mean value is above `most` goes to `dense`, which may use the memory of this.
  template <class Sink, class Dense>
  void run(Sink& sink, double most, const Dense& dense) {
    for (int from = 0; from < images.count; from += together) {
      const int count = min_int(together, images.count - from);
      int64_t sum = 0;
      for (int i = 0; i < count; ++i)
        sum += count_events(image_of(s, images, from + i), first, last, counts + i * in_rows);
      if ((double)sum > most * (double)count * in_rows * s.channels) {
        for (int i = 0; i < count; ++i) dense(from + i);
        continue;
      }
      few = (double)sum <= kFewEvents * (double)count * in_rows * s.words;
      for (int i = 0; i < count; ++i)
        count_taps(runs, span, s.steps, counts + i * in_rows, events + i * rows), clear(i);
      add_chunks(from, count);
      for (int i = 0; i < count; ++i) {
        sink.image(from + i);
        finish(sink, i);
      }
    }
  }

  template <class Sink>
  void finish(Sink& sink, int place) {
    const int block = max_int(1, kSinkRows / s.steps);
    for (int b = begin; b < end; b += block) {
      const int e = min_int(end, b + block);
      sink.open(b, e);
      for (int tile = 0; tile < tiles; ++tile) {
        const int64_t at = place * wide_each() + (tile * rows + (int64_t)(b - begin) * s.steps) * kTile;
        if (wide)
          sink.tile(tile * kTile, b, e, wide + at, s.steps, kTile);
        else
          sink.tile(tile * kTile, b, e, finish_narrow(place, tile, b, e), s.steps, kTile);
      }
      sink.close(b, e);
    }
  }
};

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
