// Dense sums: every input value times its row of weights. Values are bytes (VNNI; without it where products of two fit
// 16 bits), int16 or int32. Inputs are lines (lines.h); weights of a tile are [tap][k / group][64][group], where
// the taps of a line may be one.
#pragma once

#include "byte_dots.h"
#include "lines.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

// One dense projection: inputs copied, weights of a tile expanded, rows of sums made.
template <class X>
struct Dense {
  typedef Dot<X> D;
  const Layer& l;
  const Source& source;
  Lines<X> lines;
  int steps, above, taps, k;  // steps of the input, lines under the window, taps of all of them, numbers under one
  typename D::B* weights;
  int32_t* start;  // [64] what sums begin at: the offset taken off
  const X** pointers;
  int32_t* room;  // lines under the window

  // Inputs [first, last), outputs [begin, end); with a null arena this only counts, for any range as long.
  Dense(const Layer& layer, const Source& s, int first, int last, int begin, int end, Arena& arena)
      : l(layer), source(s), lines(layer, s, D::group, first, last, begin, end, arena) {
    steps = lines.steps, k = lines.k;
    above = l.taps / lines.axis.kernel, taps = above * lines.taps();
    weights = arena.take<typename D::B>((size_t)taps * k * kTile);
    start = arena.take<int32_t>(kTile);
    pointers = arena.take<const X*>((size_t)taps);
    room = arena.take<int32_t>((size_t)l.taps);
  }

  // Weights of the numbers [c, c + group) under a tap of the lines.
  void expand_group(const uint8_t* packed, int tap, int c, typename D::B* out) const {
    const int within = lines.merged ? c / lines.each : 0;
    if (!lines.merged || l.cin > 64) {
      c -= within * lines.each;
      const int own = lines.merged ? tap * lines.axis.kernel + within : tap;
      return D::expand(packed, packed_row(l.taps, l.cin, own, c), min_int(D::group, l.cin - c), l.bits, out);
    }
    const int all = lines.axis.kernel * l.cin;  // rows of a line's taps follow each other
    D::expand(packed, (int64_t)tap * all + c, min_int(D::group, all - c), l.bits, out);
  }

  void expand(int tile) {
    const uint8_t* packed = static_cast<const uint8_t*>(l.weights) + tile_bytes((int64_t)l.taps * l.cin, l.bits) * tile;
    typename D::B* out = weights;
    for (int tap = 0; tap < taps; ++tap)
      for (int c = 0; c < k; c += D::group, out += kTile * D::group) expand_group(packed, tap, c, out);
    std::memset(start, 0, kTile * sizeof(int32_t));
    if (lines.offset == 0) return;
    for (int64_t r = 0; r < (int64_t)l.taps * l.cin; ++r) {
      int8_t w[kTile];
      decode_row(packed, r, l.bits, w);
      for (int c = 0; c < kTile; ++c) start[c] = (int32_t)((uint32_t)start[c] - (uint32_t)(lines.offset * w[c]));
    }
  }

  // Where output `o` of an output line reads, at step 0.
  void find_inputs(int output_line, int o) const {
    lines.above(output_line, above, room);
    const X** out = pointers;
    for (int i = 0; i < above; ++i)
      for (int x = 0; x < lines.taps(); ++x) *out++ = lines.at(room[i], o, x);
  }

  // The largest product of a value and a weight.
  int most() const {
    const int value = source.spikes ? (1 << source.spikes->planes) - 1 : 255;
    return value << (l.bits - 1);
  }

  int channels(int tile) const { return min_int(kTile, l.cout - tile * kTile); }

  // Numbers between two rows of sums: as few as there are channels for, so that they stay in the first-level cache.
  int stride(int tile) const { return channels(tile) <= 8 ? 8 : (int)round_up(channels(tile), kUnit); }

  // Sums of positions [begin, end) of a tile at the input's steps into acc [position][step][stride]; it has room
  // for 64.
  void run(int tile, int begin, int end, int32_t* acc) {
    const int width = lines.axis.out, next = stride(tile);
    for (int p = begin; p < end;) {
      const int o = p % width, n = min_int(width - o, end - p);
      find_inputs(p / width, o);
      D::run({pointers, n * steps, taps, k, weights, start, acc, channels(tile), next}, most());
      p += n, acc += (int64_t)n * steps * next;
    }
  }
};

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
