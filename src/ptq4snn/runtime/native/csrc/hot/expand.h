// Packed weights of a tile to rows that kernels can add or multiply.
#pragma once

#include "pack.h"
#include "vector.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

typedef uint16_t Pairs32 __attribute__((vector_size(64)));
typedef uint8_t Bytes32 __attribute__((vector_size(32)));

// One row as signed bytes, channels in order: even bytes are channels 0..31, odd ones 32..63.
static inline void decode_row(const uint8_t* tile, int64_t r, int bits, int8_t* out) {
  const uint8_t* row = tile + (is_nibbles(bits) ? r / 2 : r) * kTile;
  const int shift = is_nibbles(bits) && r % 2 ? 4 : 0, mask = is_nibbles(bits) ? 15 : 255;
  const uint16_t offset = (uint16_t)weight_offset(bits);
  const Pairs32 pairs = (load<Pairs32>(row) >> shift) & (uint16_t)(mask * 257);
  store(out, __builtin_convertvector((pairs & 255) - offset, Bytes32));
  store(out + 32, __builtin_convertvector((pairs >> 8) - offset, Bytes32));
}

// Register v of a row: weights plus their offset, as bytes.
static inline u16v row_register(const uint8_t* tile, int64_t r, int bits, int v) {
  const bool nibbles = is_nibbles(bits);
  const u16v both = load<u16v>(tile + (nibbles ? r / 2 : r) * kTile + v * kBytes);
  const uint16_t shift = nibbles && r % 2 ? 4 : 0, mask = nibbles ? 0x0f0f : 0xffff;
  return both >> shift & mask;
}

// Low or high halves of 64 bytes, as bytes 0..15.
static inline void put_halves(const uint8_t* in, bool high, uint8_t* out) {
  for (int v = 0; v < kTileVectors; ++v) {
    const u8v both = load<u8v>(in + v * kBytes);
    store(out + v * kBytes, (high ? (u8v)((u16v)both >> 4) : both) & 15);
  }
}

// Rows [first, first + count) of a tile of nibbles as bytes 0..15, `stride` bytes apart.
static inline void expand_nibbles(const uint8_t* tile, int64_t first, int64_t count, uint8_t* out, int64_t stride) {
  for (int64_t r = first; r < first + count; ++r, out += stride) put_halves(tile + (r / 2) * kTile, r % 2, out);
}

// Nibbles of `runs` taps side by side, two channels at a time: what is written lies in order.
static inline void expand_pairs(const uint8_t* const* start, int runs, int channels, uint8_t* out, int64_t stride) {
  for (int c = 0; c < channels; c += 2, out += 2 * stride)
    for (int i = 0; i < runs; ++i) {
      put_halves(start[i] + c / 2 * kTile, false, out + i * kTile);
      put_halves(start[i] + c / 2 * kTile, true, out + stride + i * kTile);
    }
}

// The low and the high halves of rows of bytes, side by side.
static inline void expand_bytes(const uint8_t* tile, int64_t first, int64_t count, uint8_t* out, int64_t stride) {
  for (int64_t r = first; r < first + count; ++r, out += stride) {
    put_halves(tile + r * kTile, false, out);
    put_halves(tile + r * kTile, true, out + kTile);
  }
}

// All rows [tap][channel] as int16, channels in order.
static inline void expand_words(const uint8_t* tile, int taps, int channels, int bits, int16_t* out) {
  for (int tap = 0; tap < taps; ++tap)
    for (int i = 0; i < channels; ++i, out += kTile) {
      int8_t row[kTile];
      decode_row(tile, packed_row(taps, channels, tap, i), bits, row);
      for (int c = 0; c < kTile; ++c) out[c] = row[c];
    }
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
