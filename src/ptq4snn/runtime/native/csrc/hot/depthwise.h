// Depthwise sums of spikes in one plane, where sums fit int16: under every tap the weights of the channels that fire
// are added, as bytes for as many taps as cannot leave them. Few channels leave room for several steps in a register.
//
// Inputs are lines [column][step][lanes] of bytes that are all ones where a channel fires, with zeros around them;
// lanes are 16, 32 or 64 channels of a tile.
#pragma once

#include "expand.h"
#include "lines.h"
#include "rows_sink.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

static inline bool is_depthwise(const Grouped& g, const Source& s) {
  const Layer& l = g.layer;
  return s.spikes && s.spikes->planes == 1 && g.groups == l.cin && l.cout == l.cin && l.narrow;
}

// 64 bytes: all ones where a bit is set.
static inline void put_masks(uint64_t word, uint8_t* out) {
#if defined(PTQ_AVX512)
  _mm512_storeu_si512(out, _mm512_movm_epi8(word));
#elif defined(PTQ_AVX2)
  store(out, bit_masks((uint32_t)word)), store(out + 32, bit_masks((uint32_t)(word >> 32)));
#else
  decode_words(&word, 1, 1, out);
  for (int i = 0; i < kTile; i += kBytes) store(out + i, -load<u8v>(out + i));
#endif
}

constexpr int kWide = kBytes == 64 ? 8 : 4;  // positions whose sums stay in registers

struct Depthwise : LineRange {
  const Layer& l;
  const Spikes& s;
  int lanes, columns;
  int64_t column, line;  // bytes
  uint8_t *pad, *values;
  uint8_t* weights;          // [tap][64], the lanes again and again
  int32_t* group;            // [tap] whether the bytes before it are added up first
  const uint8_t** pointers;  // of the taps, at the first output of a line
  int32_t* room_above;

  // With a null arena this only counts, for any range as long.
  Depthwise(const Layer& layer, const Source& source, int first_, int last_, int begin, int end, Arena& arena)
      : LineRange(layer, source, first_, last_, begin, end, !arena.base), l(layer), s(*source.spikes) {
    lanes = l.cout <= 16 ? 16 : l.cout <= 32 ? 32 : kTile;
    columns = (outputs - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1;
    column = round_up((int64_t)s.steps * lanes, kTile), line = columns * column;
    pad = arena.take<uint8_t>((size_t)(line * (room + 1)));
    values = pad ? pad + line : nullptr;
    weights = arena.take<uint8_t>((size_t)l.taps * kTile);
    group = arena.take<int32_t>((size_t)l.taps);
    pointers = arena.take<const uint8_t*>((size_t)l.taps);
    room_above = arena.take<int32_t>((size_t)l.taps);
  }

  // One input position of a tile.
  void copy_position(const uint64_t* words, uint8_t* out) const {
    const int each = kTile / lanes;  // steps of a word
    for (int t = 0; t < s.steps; t += each, out += kTile) {
      uint64_t word = 0;
      for (int i = 0; i < each && t + i < s.steps; ++i) word |= words[(int64_t)(t + i) * s.words] << (i * lanes % 64);
      put_masks(word, out);
    }
  }

  void copy(int tile) {
    std::memset(pad, 0, (size_t)(line * (last - first + 1)));
    const int low = from * axis.stride - axis.before;  // input of the first column
    const int x0 = max_int(low, 0), x1 = min_int(low + columns, axis.size);
    const int64_t position = (int64_t)s.steps * s.words;
    for (int i = first; i < last; ++i)
      for (int x = x0; x < x1; ++x)
        copy_position(s.data + ((int64_t)i * axis.size + x) * position + tile,
                      values + (i - first) * line + (x - low) * column);
  }

  // Taps whose sums fit bytes, whatever fires, go together.
  void expand(int tile) {
    const uint8_t* packed = static_cast<const uint8_t*>(l.weights) + tile_bytes(l.taps, l.bits) * tile;
    int most[kTile] = {}, least[kTile] = {};
    for (int tap = 0; tap < l.taps; ++tap) {
      int8_t w[kTile];
      decode_row(packed, tap, l.bits, w);
      bool fits = tap > 0;
      for (int c = 0; c < kTile; ++c) {
        most[c] += max_int(w[c], 0), least[c] += min_int(w[c], 0);
        fits &= most[c] <= 127 && least[c] >= -128;
      }
      for (int c = 0; !fits && c < kTile; ++c) most[c] = max_int(w[c], 0), least[c] = min_int(w[c], 0);
      group[tap] = !fits;
      for (int c = 0; c < kTile; ++c) weights[tap * kTile + c] = (uint8_t)w[c % lanes];
    }
  }

  // A register of bytes of a position into its sums [step][lanes]; what is behind the last step is left out.
  void add_up(u8v bytes, int at, bool first_group, int16_t* acc) const {
    typedef int8_t Half __attribute__((vector_size(kBytes / 2)));
    const auto half = [&](Half some, int place) {
      int16_t* const to = acc + place;
      const i16v sum = __builtin_convertvector(some, i16v);
      const i16v all = first_group ? sum : sum + load<i16v>(to);
      const int left = s.steps * lanes - place;
      if (left >= kBytes / 2)
        store(to, all);
      else if (left > 0)  // lanes are whole units
        std::memcpy(to, &all, sizeof(int16_t) * kUnit);
    };
    Half halves[2];
    std::memcpy(halves, &bytes, sizeof bytes);
    half(halves[0], at), half(halves[1], at + kBytes / 2);
  }

  // P positions by V registers from byte `at` of a position on; `o` is the first, from the line's first.
  template <int P, int V>
  void add_taps(int64_t o, int at, int16_t* acc) const {
    u8v sum[P][V] = {};
    const int64_t start = o * axis.stride * column + at, next = axis.stride * column;
    const int turn = at % kTile;
    const auto flush = [&](bool first_group) {
      for (int p = 0; p < P; ++p)
        for (int v = 0; v < V; ++v) {
          add_up(sum[p][v], at + v * kBytes, first_group, acc + (o + p) * s.steps * lanes);
          sum[p][v] = u8v{};
        }
    };
    int begun = 0;
    for (int tap = 0; tap < l.taps; ++tap) {
      if (group[tap] && tap > 0) flush(begun++ == 0);
      const FourRows<P, uint8_t> x(pointers[tap] + start, next);
      const uint8_t* w = weights + tap * kTile;
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        const u8v weight = load<u8v>(w + (turn + v * kBytes) % kTile);
#pragma GCC unroll 8
        for (int p = 0; p < P; ++p) sum[p][v] += load<u8v>(x.at(p) + v * kBytes) & weight;
      }
    }
    flush(begun == 0);
  }

  template <int P>
  void add_positions(int64_t o, int16_t* acc) const {
    int at = 0;
    const int bytes = s.steps * lanes;
    for (; at + 2 * kBytes <= bytes; at += 2 * kBytes) add_taps<P, 2>(o, at, acc);
    for (; at < bytes; at += kBytes) add_taps<P, 1>(o, at, acc);
  }

  // Sums of positions [begin, end) into acc [position][step][lanes].
  void run(int begin, int end, int16_t* acc) const {
    for (int p = begin; p < end;) {
      const int o = p % axis.out, n = min_int(axis.out - o, end - p);
      above(p / axis.out, l.taps / axis.kernel, room_above);
      for (int tap = 0; tap < l.taps; ++tap) {
        const int from_line = room_above[tap / axis.kernel];
        const uint8_t* start = from_line < 0 ? pad : values + (from_line - first) * line;
        pointers[tap] = start + ((o - from) * axis.stride + tap % axis.kernel * axis.dilation) * column;
      }
      int i = 0;
      for (; i + kWide <= n; i += kWide) add_positions<kWide>(i, acc);
      for (; i + 4 <= n; i += 4) add_positions<4>(i, acc);
      for (; i < n; ++i) add_positions<1>(i, acc);
      p += n, acc += (int64_t)n * s.steps * lanes;
    }
  }
};

constexpr int kDepthwiseRows = 256;  // of sums at once: they stay in the first-level cache

static void run_depthwise(const Grouped& g, const Source& s, int steps, const RowsOut& out, int begin, int end,
                          Arena& arena) {
  int first, last;
  input_range(g.layer, s, begin, end, &first, &last);
  Depthwise sums(g.layer, s, first, last, begin, end, arena);
  const int own = s.spikes->steps, block = max_int(1, min_int(end - begin, kDepthwiseRows / own));
  int16_t* acc = arena.take<int16_t>((size_t)block * own * kTile);
  RowsSink sink = {g.layer, steps, out, 0, out};
  for (int tile = 0; tile * kTile < g.layer.cout; ++tile) {
    sums.copy(tile);
    sums.expand(tile);
    for (int b = begin; b < end; b += block) {
      const int e = min_int(end, b + block);
      sums.run(b, e, acc);
      sink.tile(tile * kTile, b, e, acc, own, sums.lanes);
    }
  }
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
