// Convolutions in groups. Output channel o reads channels o / (cout / groups) * (cin / groups) + i, i < cin / groups;
// depthwise is the case of one channel a group. Inputs are laid out once as rows [cin / groups][cout] of what every
// output channel reads, so that all channels are multiplied side by side.
#pragma once

#include "dense.h"
#include "depthwise.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

template <class X>
struct GroupedSums {
  const Grouped& g;
  const Source& source;
  int first, last, steps, width, each;  // each: cin / groups; width: padded cout
  X *values, *row, *pad;
  int16_t* weights;      // [taps][each][64]
  const X** inputs;      // of the taps of a position that are inside, at step 0
  const int16_t** rows;  // their weights
  int32_t* room;         // taps of a position

  GroupedSums(const Grouped& grouped, const Source& s, int first_, int last_, Arena& arena) : g(grouped), source(s) {
    first = first_, last = last_, steps = steps_of(s);
    each = g.layer.cin / g.groups, width = padded(g.layer.cout);
    values = arena.take<X>((size_t)(last - first) * steps * each * width);
    row = arena.take<X>((size_t)g.layer.cin + kTile);
    pad = arena.take<X>((size_t)each * width);
    weights = arena.take<int16_t>((size_t)g.layer.taps * each * kTile);
    inputs = arena.take<const X*>((size_t)g.layer.taps);
    rows = arena.take<const int16_t*>((size_t)g.layer.taps);
    room = arena.take<int32_t>((size_t)g.layer.taps);
  }

  void copy_inputs() {
    const int of_group = g.layer.cout / g.groups;
    std::memset(pad, 0, sizeof(X) * (size_t)each * width);
    X* out = values;
    for (int64_t r = (int64_t)first * steps; r < (int64_t)last * steps; ++r) {
      copy_values(source, r, 1, 0, row);
      for (int i = 0; i < each; ++i, out += width) {
        for (int o = g.layer.cout; o < width; ++o) out[o] = 0;
        if (each == 1 && of_group == 1) {
          std::memcpy(out, row, sizeof(X) * (size_t)g.layer.cout);
          continue;
        }
        for (int o = 0; o < g.layer.cout; ++o) out[o] = row[o / of_group * each + i];
      }
    }
  }

  void expand(int tile) {
    const int64_t rows = (int64_t)g.layer.taps * each;
    const uint8_t* packed = static_cast<const uint8_t*>(g.layer.weights) + tile_bytes(rows, g.layer.bits) * tile;
    expand_words(packed, g.layer.taps, each, g.layer.bits, weights);
  }

  // The taps of the next position that are inside.
  int find_taps(int tile, TapWalk& walk) {
    const int32_t* from = walk.next();
    int n = 0;
    for (int tap = 0; tap < g.layer.taps; ++tap) {
      if (from[tap] < 0) continue;
      inputs[n] = values + (int64_t)(from[tap] - first) * steps * each * width + tile * kTile;
      rows[n++] = weights + (int64_t)tap * each * kTile;
    }
    return n;
  }

  void run(int tile, int begin, int end, int32_t* acc) {
    TapWalk walk(taps_of(g.layer), begin, room);
    for (int p = begin; p < end; ++p) {
      const int n = find_taps(tile, walk);
      for (int t = 0; t < steps; ++t, acc += kTile) {
        uint32_t sum[kTile] = {};
        for (int tap = 0; tap < n; ++tap) {
          const X* x = inputs[tap] + (int64_t)t * each * width;
          const int16_t* w = rows[tap];
          for (int i = 0; i < each; ++i, x += width, w += kTile)
            for (int c = 0; c < kTile; ++c) sum[c] += (uint32_t)(int32_t)x[c] * (uint32_t)(int32_t)w[c];
        }
        std::memcpy(acc, sum, sizeof sum);
      }
    }
  }

  // T steps from t on of n taps modulo 2^16, one register of channels after the other.
  template <int T>
  void add_words(int n, int t, int channels, int16_t* acc) const {
    const int64_t step = (int64_t)each * width;
    const X* const* const from = inputs;
    const int16_t* const* const by = rows;
    for (int c = 0; c < channels; c += kBytes / 2) {
      u16v sum[T] = {};
      for (int tap = 0; tap < n; ++tap) {
        const X* x = from[tap] + t * step + c;
        const int16_t* w = by[tap] + c;
        for (int i = 0; i < each; ++i, x += width, w += kTile) {
          const u16v weight = load<u16v>(w);
#pragma GCC unroll 4
          for (int k = 0; k < T; ++k) sum[k] += load<u16v>(x + k * step) * weight;
        }
      }
#pragma GCC unroll 4
      for (int k = 0; k < T; ++k) store(acc + k * kTile + c, sum[k]);
    }
  }

  // The same as `run` where sums are proven to fit int16; X is int16.
  void run_words(int tile, int begin, int end, int16_t* acc) {
    const int channels = min_int(kTile, g.layer.cout - tile * kTile);
    TapWalk walk(taps_of(g.layer), begin, room);
    for (int p = begin; p < end; ++p, acc += steps * kTile) {
      const int n = find_taps(tile, walk);
      int t = 0;
      for (; t + 4 <= steps; t += 4) add_words<4>(n, t, channels, acc + t * kTile);
      for (; t < steps; ++t) add_words<1>(n, t, channels, acc + t * kTile);
    }
  }
};

template <class X>
static void run_grouped(const Grouped& g, const Source& s, int steps, const RowsOut& out, int begin, int end,
                        Arena& arena) {
  int first, last;
  input_range(g.layer, s, begin, end, &first, &last);
  GroupedSums<X> sums(g, s, first, last, arena);
  int32_t* acc = arena.take<int32_t>((size_t)(end - begin) * sums.steps * kTile);
  RowsSink sink = {g.layer, steps, out, 0, out};
  sums.copy_inputs();
  for (int tile = 0; tile * kTile < g.layer.cout; ++tile) {
    sums.expand(tile);
    if (sizeof(X) == 2 && g.layer.narrow) {
      int16_t* words = reinterpret_cast<int16_t*>(acc);
      sums.run_words(tile, begin, end, words);
      sink.tile(tile * kTile, begin, end, words, sums.steps, kTile);
      continue;
    }
    sums.run(tile, begin, end, acc);
    sink.tile(tile * kTile, begin, end, acc, sums.steps, kTile);
  }
}

static inline bool fits_words(const Source& s) { return s.spikes || s.rows->type != Type::I32; }

static size_t grouped_scratch(const Grouped& g, const Source& s, int, int range) {
  Arena arena = {nullptr, 0};
  const int positions = input_room(g.layer, s, range);
  if (is_depthwise(g, s)) {
    Depthwise sums(g.layer, s, 0, positions, 0, range, arena);
  } else if (fits_words(s)) {
    GroupedSums<int16_t> sums(g, s, 0, positions, arena);
  } else {
    GroupedSums<int32_t> sums(g, s, 0, positions, arena);
  }
  arena.take<int32_t>((size_t)range * steps_of(s) * kTile);
  return arena.used;
}

static void grouped_rows(const Grouped& g, const Source& s, int steps, const RowsOut& out, int begin, int end,
                         const Scratch& scratch) {
  Arena arena = {static_cast<char*>(scratch.data), 0};
  if (is_depthwise(g, s)) return run_depthwise(g, s, steps, out, begin, end, arena);
  fits_words(s) ? run_grouped<int16_t>(g, s, steps, out, begin, end, arena)
                : run_grouped<int32_t>(g, s, steps, out, begin, end, arena);
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
