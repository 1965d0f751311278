// Packed weights of a chunk as the event path adds them: rows of bytes [channel][tap][tile][half][64].
#pragma once

#include "chunks.h"
#include "expand.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

static inline int halves_of(const Layer& l) { return is_nibbles(l.bits) ? 1 : 2; }

static inline int64_t channel_bytes(const Chunk& k, int halves) { return (int64_t)k.ranks * k.tiles * halves * kTile; }

static inline int64_t chunk_bytes(const Layer& l, const Chunk& k) {
  return channel_bytes(k, halves_of(l)) * min_int(64, l.cin - k.word * 64);
}

static inline void expand_chunk(const Layer& l, const Chunk& k, const int32_t* order, uint8_t* out) {
  const int halves = halves_of(l);
  const int64_t stride = channel_bytes(k, halves), all = (int64_t)l.taps * l.cin;
  const int channels = min_int(64, l.cin - k.word * 64);
  const bool pairs = halves == 1 && channels % 2 == 0;  // every run begins with the low half of a byte
  const uint8_t* start[kChunkRows];
  int64_t row[kChunkRows];
  int streams = 0;
  for (int rank = k.rank; rank < k.rank + k.ranks; ++rank)
    for (int i = 0; i < k.tiles; ++i, ++streams) {
      row[streams] = packed_row(l.taps, l.cin, order[rank], k.word * 64);
      start[streams] = static_cast<const uint8_t*>(l.weights) + tile_bytes(all, l.bits) * (k.tile + i);
      start[streams] += pairs ? row[streams] / 2 * kTile : 0;
    }
  if (pairs) return expand_pairs(start, streams, channels, out, stride);
  for (int i = 0; i < streams; ++i)
    halves == 1 ? expand_nibbles(start[i], row[i], channels, out + i * kTile, stride)
                : expand_bytes(start[i], row[i], channels, out + i * 2 * kTile, stride);
}

// All chunks of a layer, in their order.
template <class Each>
static void each_chunk(const Layer& l, const Each& each) {
  const OwnRuns own(0, l.positions);
  const Runs runs(l.runs ? l.runs : own.numbers, l.taps);
  for (Chunks chunks(runs.class_start, runs.classes, l.cin, padded(l.cout) / kTile, halves_of(l)); chunks.more();
       chunks.next())
    each(chunks.now, runs.order);
}

static size_t expanded_bytes(const Layer& l) {
  size_t sum = 0;
  each_chunk(l, [&](const Chunk& k, const int32_t*) { sum += (size_t)chunk_bytes(l, k); });
  return sum;
}

static void expand_weights(const Layer& l, uint8_t* out) {
  each_chunk(l, [&](const Chunk& k, const int32_t* order) {
    expand_chunk(l, k, order, out);
    out += chunk_bytes(l, k);
  });
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
