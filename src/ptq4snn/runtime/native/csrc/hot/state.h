// Packed rows of state to and from int32 Vq.
#pragma once

#include "vector.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

static inline int fields_of(const StateLayout& s) {
  int n = 0;
  for (int i = 0; i < 6; ++i) n += s.count[i];
  return n;
}

// Reads little-endian bits; never behind `end`.
struct BitReader {
  const uint8_t *in, *end;
  uint64_t held;
  int bits;

  uint64_t take(int n) {  // n <= 32
    while (bits < n) {
      if (end - in >= 4) {
        uint32_t four;
        std::memcpy(&four, in, 4);
        held |= (uint64_t)four << bits;
        in += 4, bits += 32;
      } else {
        held |= (uint64_t)*in++ << bits;
        bits += 8;
      }
    }
    const uint64_t x = held & (((uint64_t)1 << n) - 1);
    held >>= n;
    bits -= n;
    return x;
  }
};

struct BitWriter {
  uint8_t* out;
  uint64_t held;
  int bits;

  void put(uint64_t x, int n) {  // n <= 32, x < 2^n
    held |= x << bits;
    bits += n;
    if (bits >= 32) {
      const uint32_t four = (uint32_t)held;
      std::memcpy(out, &four, 4);
      out += 4, held >>= 32, bits -= 32;
    }
  }

  void finish() {
    for (; bits > 0; bits -= 8, held >>= 8) *out++ = (uint8_t)held;
  }
};

// Eight fields of `width` <= 4 bits side by side, to and from eight bytes (low bits, not sign-extended).
static inline uint64_t spread8(uint64_t x, int width) {
#if defined(__BMI2__)
  return _pdep_u64(x, 0x0101010101010101ull * ((1u << width) - 1));
#else
  uint64_t out = 0;
  for (int i = 0; i < 8; ++i) out |= (x >> (width * i) & ((1u << width) - 1)) << (8 * i);
  return out;
#endif
}

static inline uint64_t gather8(uint64_t x, int width) {
#if defined(__BMI2__)
  return _pext_u64(x, 0x0101010101010101ull * ((1u << width) - 1));
#else
  uint64_t out = 0;
  for (int i = 0; i < 8; ++i) out |= (x >> (8 * i) & ((1u << width) - 1)) << (width * i);
  return out;
#endif
}

static inline int32_t sign_extend(uint64_t x, int width) {
  const uint32_t sign = (uint32_t)1 << (width - 1);
  return (int32_t)(((uint32_t)x ^ sign) - sign);
}

static inline void read_fields(BitReader& r, int width, int count, int32_t* out) {
  int i = 0;
  if (width <= 4) {
    for (; i + 8 <= count; i += 8) {
      const uint64_t eight = spread8(r.take(8 * width), width);
      for (int j = 0; j < 8; ++j) out[i + j] = sign_extend(eight >> (8 * j) & 255, width);
    }
  }
  for (; i < count; ++i) out[i] = sign_extend(r.take(width), width);
}

static inline void write_fields(BitWriter& w, int width, int count, const int32_t* in) {
  int i = 0;
  if (width <= 4) {
    for (; i + 8 <= count; i += 8) {
      uint64_t eight = 0;
      for (int j = 0; j < 8; ++j) eight |= (uint64_t)(uint8_t)in[i + j] << (8 * j);
      w.put(gather8(eight, width), 8 * width);
    }
  }
  const uint64_t mask = ((uint64_t)1 << width) - 1;
  for (; i < count; ++i) w.put((uint32_t)in[i] & mask, width);
}

// One row to v [padded channels]; `fields` is room for as many.
static inline void unpack_row(const StateLayout& s, const uint8_t* row, int32_t* fields, int32_t* v) {
  BitReader reader = {row, row + s.row_bytes, 0, 0};
  const int n = fields_of(s);
  int32_t* to = s.order ? fields : v;
  for (int i = 0, at = 0; i < 6; at += s.count[i++]) read_fields(reader, kWidths[i], s.count[i], to + at);
  if (s.order)
    for (int i = 0; i < n; ++i) v[s.order[i]] = fields[i];
  if (s.zero)
    for (int c = 0; c < n; ++c) v[c] = (int32_t)((uint32_t)v[c] + (uint32_t)s.zero[c]);
}

static inline void pack_row(const StateLayout& s, const int32_t* v, int32_t* fields, uint8_t* row) {
  BitWriter writer = {row, 0, 0};
  const int n = fields_of(s);
  for (int i = 0; i < n; ++i) {
    const int c = s.order ? s.order[i] : i;
    fields[i] = (int32_t)((uint32_t)v[c] - (s.zero ? (uint32_t)s.zero[c] : 0u));
  }
  for (int i = 0, at = 0; i < 6; at += s.count[i++]) write_fields(writer, kWidths[i], s.count[i], fields + at);
  writer.finish();
}

// Unpacked states of a block of positions, [position][padded channels].
struct States {
  const State* state;  // null: neurons begin at 0 and nothing is kept
  int32_t *v, *fields;
  int stride;

  States(const State* s, int channels, int positions, Arena& arena) : state(s), v(nullptr), fields(nullptr) {
    stride = padded(channels);
    if (!s) return;
    v = arena.take<int32_t>((size_t)positions * stride);
    fields = arena.take<int32_t>((size_t)stride);
  }

  void open(int begin, int end) {
    if (!state) return;
    std::memset(v, 0, (size_t)(end - begin) * stride * sizeof(int32_t));  // padding channels too
    for (int p = begin; p < end; ++p)
      unpack_row(*state->layout, state->data + (int64_t)p * state->layout->row_bytes, fields,
                 v + (int64_t)(p - begin) * stride);
  }

  void close(int begin, int end) {
    if (!state) return;
    for (int p = begin; p < end; ++p)
      pack_row(*state->layout, v + (int64_t)(p - begin) * stride, fields,
               state->data + (int64_t)p * state->layout->row_bytes);
  }
};

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
