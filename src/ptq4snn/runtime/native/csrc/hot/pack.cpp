// Packing of weights; once for each projection when a model is loaded.
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

}  // namespace hot
}  // namespace ptq
