// Layout of packed weights, the same for all ISA levels:
//     [cout tiles of 64][words of 64 input channels][taps][channels of the word][64 output channels]
// so that what the event kernel expands at once lies together. A row is the 64 output channels of a tap and channel.
// Bytes (bits > 4): weight + 128. Nibbles: weight + 8 in 0..15; the low halves of 64 bytes hold row 2i, the high halves
// row 2i + 1, so that a pair of rows expands with one mask and one shift. Byte j of a row is channel
// j / 2 + 32 * (j % 2): when sums of bytes are widened, even bytes give channels 0..31 and odd bytes 32..63.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../layer.h"

namespace ptq {
namespace hot {

static inline bool is_nibbles(int bits) { return bits <= 4; }
static inline int byte_channel(int byte) { return byte / 2 + 32 * (byte % 2); }

static inline int weight_offset(int bits) { return is_nibbles(bits) ? 8 : 128; }

// Number of the row of a tap and an input channel.
static inline int64_t packed_row(int taps, int cin, int tap, int channel) {
  const int word = channel / 64, width = cin - word * 64 < 64 ? cin - word * 64 : 64;
  return (int64_t)word * 64 * taps + (int64_t)tap * width + channel % 64;
}

static inline size_t tile_bytes(int64_t rows, int bits) {
  return is_nibbles(bits) ? (size_t)((rows + 1) / 2) * kTile : (size_t)rows * kTile;
}

}  // namespace hot
}  // namespace ptq
