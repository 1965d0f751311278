// Packing of weights and inversion of tap tables; once for each projection when a model is loaded.
#include "pack.h"

#include <cstring>

namespace ptq {
namespace hot {

size_t weights_bytes(int taps, int cin, int cout, int bits) {
  return tile_bytes((int64_t)taps * cin, bits) * (size_t)(padded(cout) / kTile);
}

static void pack_row(const int8_t* row, int channels, int64_t r, int bits, uint8_t* tile) {
  for (int byte = 0; byte < kTile; ++byte) {
    const int c = byte_channel(byte);
    const int w = (c < channels ? row[c] : 0) + weight_offset(bits);
    if (is_nibbles(bits)) {
      uint8_t& out = tile[(r / 2) * kTile + byte];
      out = (uint8_t)(out | (w & 15) << (r % 2 ? 4 : 0));
    } else {
      tile[r * kTile + byte] = (uint8_t)w;
    }
  }
}

void pack_weights(const int8_t* weights, int taps, int cin, int cout, int bits, void* out) {
  const int64_t rows = (int64_t)taps * cin;
  std::memset(out, 0, weights_bytes(taps, cin, cout, bits));
  for (int tile = 0; tile * kTile < cout; ++tile) {
    uint8_t* packed = static_cast<uint8_t*>(out) + tile_bytes(rows, bits) * (size_t)tile;
    const int first = tile * kTile;
    for (int tap = 0; tap < taps; ++tap)
      for (int c = 0; c < cin; ++c)
        pack_row(weights + ((int64_t)tap * cin + c) * cout + first, cout - first, packed_row(taps, cin, tap, c), bits,
                 packed);
  }
}

size_t inverse_numbers(int positions, int taps, int in_positions) {
  return 3 + 4 * (size_t)taps + (size_t)in_positions + 1 + 2 * (size_t)positions * (size_t)taps;
}

// Pairs (tap, output position) of every input position by tap, from the starts.
static void sort_pairs(const int32_t* table, int positions, int taps, int in_positions, int32_t* start,
                       int32_t* pairs) {
  std::memset(start, 0, sizeof(int32_t) * ((size_t)in_positions + 1));
  for (int64_t i = 0; i < (int64_t)positions * taps; ++i)
    if (table[i] >= 0) ++start[table[i] + 1];
  for (int p = 0; p < in_positions; ++p) start[p + 1] += start[p];
  for (int tap = 0; tap < taps; ++tap)  // starts move to the ends of their lists ...
    for (int p = 0; p < positions; ++p) {
      const int from = table[(int64_t)p * taps + tap];
      if (from < 0) continue;
      int32_t* pair = pairs + 2 * (int64_t)start[from]++;
      pair[0] = tap, pair[1] = p;
    }
  for (int p = in_positions; p > 0; --p) start[p] = start[p - 1];  // ... and back
  start[0] = 0;
}

// The lowest tap of every class into `label`.
static void label_classes(int taps, int in_positions, const int32_t* start, const int32_t* pairs, int32_t* label) {
  for (int i = 0; i < taps; ++i) label[i] = i;
  for (int p = 0; p < in_positions; ++p)
    for (int i = start[p] + 1; i < start[p + 1]; ++i) {
      const int a = label[pairs[2 * (i - 1)]], b = label[pairs[2 * i]];
      const int low = a < b ? a : b, high = a < b ? b : a;
      for (int k = 0; low != high && k < taps; ++k)
        if (label[k] == high) label[k] = low;
    }
}

void make_inverse(const int32_t* table, int positions, int taps, int in_positions, int32_t* out) {
  int32_t *class_start = out + 2, *order = class_start + taps + 1, *start = order + taps;
  int32_t* pairs = start + in_positions + 1;
  int32_t *label = pairs + 2 * (int64_t)positions * taps, *rank = label + taps;  // only needed here
  sort_pairs(table, positions, taps, in_positions, start, pairs);
  label_classes(taps, in_positions, start, pairs, label);
  int classes = 0, ranks = 0;
  for (int c = 0; c < taps; ++c) {
    if (label[c] != c) continue;
    class_start[classes++] = ranks;
    for (int tap = 0; tap < taps; ++tap)
      if (label[tap] == c) rank[tap] = ranks, order[ranks++] = tap;
  }
  class_start[classes] = ranks;
  out[0] = classes;
  out[1] = 1;
  for (int p = 0; p < in_positions; ++p)
    for (int64_t i = start[p]; i < start[p + 1]; ++i) {
      pairs[2 * i] = rank[pairs[2 * i]];
      if (i > start[p] && pairs[2 * i] == pairs[2 * i - 2]) out[1] = 0;
    }
}

}  // namespace hot
}  // namespace ptq
