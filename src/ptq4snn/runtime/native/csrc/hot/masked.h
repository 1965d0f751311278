// Depthwise sums of spikes in one plane, where sums fit int16 and a word is a mask of 64 channels: under every tap the
// weights of the channels that fire are added, nothing is unpacked.
#pragma once

#include "expand.h"
#include "ranges.h"
#include "sinks.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

#if defined(PTQ_AVX512)
constexpr bool kHasMasks = true;
#else
constexpr bool kHasMasks = false;
#endif

static inline bool by_masks(const Grouped& g, const Source& s) {
  const Layer& l = g.layer;
  return kHasMasks && s.spikes && s.spikes->planes == 1 && g.groups == l.cin && l.cout == l.cin && l.narrow;
}

struct MaskedSums {
  const Layer& l;
  const Spikes& s;
  int16_t* weights;         // [taps][64]
  const uint64_t** inputs;  // of the taps of a position that are inside, at step 0
  const int16_t** rows;     // their weights
  int32_t* room;            // taps of a position

  MaskedSums(const Layer& layer, const Spikes& spikes, Arena& arena) : l(layer), s(spikes) {
    weights = arena.take<int16_t>((size_t)l.taps * kTile);
    inputs = arena.take<const uint64_t*>((size_t)l.taps);
    rows = arena.take<const int16_t*>((size_t)l.taps);
    room = arena.take<int32_t>((size_t)l.taps);
  }

  void expand(int tile) {
    const uint8_t* packed = static_cast<const uint8_t*>(l.weights) + tile_bytes(l.taps, l.bits) * tile;
    expand_words(packed, l.taps, 1, l.bits, weights);
  }

  int find_taps(int tile, TapWalk& walk) const {
    const int32_t* from = walk.next();
    const int64_t position = (int64_t)s.steps * s.words;
    int n = 0;
    for (int tap = 0; tap < l.taps; ++tap) {
      inputs[n] = s.data + max_int(from[tap], 0) * position + tile;
      rows[n] = weights + tap * kTile;
      n += from[tap] >= 0;
    }
    return n;
  }

#if defined(PTQ_AVX512)
  // T steps from t on of n taps, H halves of the word.
  template <int T, int H>
  void add_steps(int n, int t, int16_t* acc) const {
    __m512i sum[T][H];
    for (int k = 0; k < T; ++k)
      for (int h = 0; h < H; ++h) sum[k][h] = _mm512_setzero_si512();
    const int64_t first = (int64_t)t * s.words, step = s.words;
    const uint64_t* const* const in = inputs;
    const int16_t* const* const by = rows;
    for (int tap = 0; tap < n; ++tap) {
      const uint64_t* x = in[tap] + first;
      __m512i w[H];
      for (int h = 0; h < H; ++h) w[h] = _mm512_loadu_si512(by[tap] + h * 32);
#pragma GCC unroll 4
      for (int k = 0; k < T; ++k)
#pragma GCC unroll 2
        for (int h = 0; h < H; ++h) {
          const __mmask32 fires = (__mmask32)(x[k * step] >> (32 * h));
          sum[k][h] = _mm512_mask_add_epi16(sum[k][h], fires, sum[k][h], w[h]);
        }
    }
    for (int k = 0; k < T; ++k)
      for (int h = 0; h < H; ++h) _mm512_storeu_si512(acc + k * kTile + h * 32, sum[k][h]);
  }
#else
  template <int T, int H>
  void add_steps(int, int, int16_t*) const {}
#endif

  template <int H>
  void add_position(int n, int16_t* acc) const {
    int t = 0;
    for (; t + 4 <= s.steps; t += 4) add_steps<4, H>(n, t, acc + t * kTile);
    for (; t < s.steps; ++t) add_steps<1, H>(n, t, acc + t * kTile);
  }

  void run(int tile, int begin, int end, int16_t* acc) const {
    const bool half = l.cout - tile * kTile <= 32;
    TapWalk walk(taps_of(l), begin, room);
    for (int p = begin; p < end; ++p, acc += s.steps * kTile) {
      const int n = find_taps(tile, walk);
      half ? add_position<1>(n, acc) : add_position<2>(n, acc);
    }
  }
};

static void run_masked(const Grouped& g, const Source& s, int steps, const RowsOut& out, int begin, int end,
                       Arena& arena) {
  MaskedSums sums(g.layer, *s.spikes, arena);
  int16_t* acc = arena.take<int16_t>((size_t)(end - begin) * s.spikes->steps * kTile);
  RowsSink sink = {g.layer, steps, out, 0, out};
  for (int tile = 0; tile * kTile < g.layer.cout; ++tile) {
    sums.expand(tile);
    sums.run(tile, begin, end, acc);
    sink.tile(tile * kTile, begin, end, acc, s.spikes->steps);
  }
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
