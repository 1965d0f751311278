// Dense sums: every input value times its row of weights. Values are bytes (AVX-512 VNNI; AVX2 where products of two
// fit 16 bits), int16 or int32.
//
// Inputs are copied to rows [position][step][k], k = channels padded to the group of values that one instruction
// takes; padding taps read rows of their own. Weights of a tile are [tap][k / group][64][group].
#pragma once

#include "dots.h"
#include "ranges.h"
#include "values.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

// One dense projection: inputs copied, weights of a tile expanded, rows of sums made.
template <class X>
struct Dense {
  typedef Dot<X> D;
  const Layer& l;
  const Source& source;
  int first, last, steps, k, offset;  // input positions, steps of the input, padded channels, added to every value
  X *pad, *values;                    // zeros of one position, then the positions
  typename D::B* weights;
  int32_t* start;  // [64] what sums begin at: the offset taken off
  const X** pointers;
  int32_t* room;  // taps of a position

  // `range` bounds the positions of the input; with a null arena this only counts.
  Dense(const Layer& layer, const Source& s, int first_, int last_, Arena& arena) : l(layer), source(s) {
    first = first_, last = last_, steps = steps_of(s);
    k = (int)round_up(l.cin, D::group);
    offset = sizeof(X) == 1 && s.rows && s.rows->type != Type::U8 ? 128 : 0;
    const size_t position = (size_t)steps * k;
    pad = arena.take<X>(position * (size_t)(last - first + 1) + kTile);  // rows of spikes are written in whole tiles
    values = pad ? pad + position : nullptr;
    weights = arena.take<typename D::B>((size_t)l.taps * k * kTile);
    start = arena.take<int32_t>(kTile);
    pointers = arena.take<const X*>((size_t)l.taps * kDotRows);
    room = arena.take<int32_t>((size_t)l.taps);
  }

  void copy_inputs() {
    for (int i = 0; i < steps * k; ++i) pad[i] = (X)offset;
    if (source.spikes && sizeof(X) == 1) return spread_spikes(reinterpret_cast<uint8_t*>(values));
    for (int64_t row = 0; row < (int64_t)(last - first) * steps; ++row) {
      X* out = values + row * k;
      copy_values(source, (int64_t)first * steps + row, offset, out);
      for (int c = l.cin; c < k; ++c) out[c] = 0;
    }
  }

  // Rows one after the other: what a tile writes behind its row, the next row writes again.
  void spread_spikes(uint8_t* out) const {
    const Spikes& s = *source.spikes;
    const uint64_t* words = s.data + (int64_t)first * steps * s.planes * s.words;
    for (int64_t row = 0; row < (int64_t)(last - first) * steps; ++row, out += k, words += s.planes * s.words)
      for (int w = 0; w < s.words; ++w) decode_words(words + w, s.planes, s.words, out + w * 64);
  }

  void expand(int tile) {
    const uint8_t* packed = static_cast<const uint8_t*>(l.weights) + tile_bytes((int64_t)l.taps * l.cin, l.bits) * tile;
    typename D::B* out = weights;
    for (int tap = 0; tap < l.taps; ++tap)
      for (int c = 0; c < k; c += D::group, out += kTile * D::group)
        D::expand(packed, packed_row(l.taps, l.cin, tap, c), min_int(D::group, l.cin - c), l.bits, out);
    std::memset(start, 0, kTile * sizeof(int32_t));
    if (offset == 0) return;
    for (int64_t r = 0; r < (int64_t)l.taps * l.cin; ++r) {
      int8_t w[kTile];
      decode_row(packed, r, l.bits, w);
      for (int c = 0; c < kTile; ++c) start[c] = (int32_t)((uint32_t)start[c] - (uint32_t)(offset * w[c]));
    }
  }

  // Inputs of the next position at step 0.
  void find_inputs(TapWalk& walk, const X** out) const {
    const int32_t* from = walk.next();
    const int64_t position = (int64_t)steps * k;
    for (int tap = 0; tap < l.taps; ++tap) out[tap] = values + max_int(from[tap] - first, -1) * position;  // -1: pad
  }

  // The largest product of a value and a weight.
  int most() const {
    const int value = source.spikes ? (1 << source.spikes->planes) - 1 : 255;
    return value << (l.bits - 1);
  }

  // Sums of positions [begin, end) of a tile at the input's steps into acc [position][step][64].
  void run(int tile, int begin, int end, int32_t* acc) {
    const int64_t rows = (int64_t)(end - begin) * steps;
    const int channels = min_int(kTile, l.cout - tile * kTile);
    const X** before = nullptr;
    TapWalk walk(taps_of(l), begin, room);
    int t = 0;  // of the next row
    for (int64_t row = 0; row < rows; row += kDotRows) {
      const int n = (int)(rows - row < kDotRows ? rows - row : kDotRows);
      for (int m = 0; m < n; ++m) {
        const X** inputs = pointers + m * l.taps;
        if (t == 0)
          find_inputs(walk, inputs);
        else
          for (int tap = 0; tap < l.taps; ++tap) inputs[tap] = before[tap] + k;
        before = inputs;
        if (++t == steps) t = 0;
      }
      D::run({pointers, n, l.taps, k, weights, start, acc + row * kTile, channels}, most());
    }
  }
};

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
