// Packed rows of state to and from int32 Vq.
#pragma once

#include "vector.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

static inline int fields_of(const StateLayout& s) {
  int n = 0;
  for (int i = 0; i < kHotWidthCount; ++i) n += s.count[i];
  return n;
}

static inline int32_t sign_extend(uint32_t x, int width) {
  const uint32_t sign = (uint32_t)1 << (width - 1);
  return (int32_t)((x ^ sign) - sign);
}

// Fields that begin with a byte: the loops become vector code.
static inline void read_aligned(const uint8_t* in, int width, int n, int32_t* out) {
  if (width == 32) {
    std::memcpy(out, in, (size_t)n * 4);
  } else if (width == 16) {
    for (int i = 0; i < n; ++i) out[i] = (int16_t)(in[2 * i] | in[2 * i + 1] << 8);
  } else if (width == 8) {
    for (int i = 0; i < n; ++i) out[i] = (int8_t)in[i];
  } else if (width == 4) {
    for (int i = 0; i < n / 2; ++i) out[2 * i] = ((in[i] & 15) ^ 8) - 8, out[2 * i + 1] = ((in[i] >> 4) ^ 8) - 8;
    if (n % 2) out[n - 1] = ((in[n / 2] & 15) ^ 8) - 8;
  } else {
    for (int i = 0; i < n / 4; ++i)
      for (int j = 0; j < 4; ++j) out[4 * i + j] = ((in[i] >> (2 * j) & 3) ^ 2) - 2;
    for (int i = n / 4 * 4; i < n; ++i) out[i] = ((in[i / 4] >> (2 * (i % 4)) & 3) ^ 2) - 2;
  }
}

// The bits behind the last field of a byte become zero.
static inline void write_aligned(uint8_t* out, int width, int n, const int32_t* in) {
  if (width == 32) {
    std::memcpy(out, in, (size_t)n * 4);
  } else if (width == 16) {
    for (int i = 0; i < n; ++i) out[2 * i] = (uint8_t)in[i], out[2 * i + 1] = (uint8_t)((uint32_t)in[i] >> 8);
  } else if (width == 8) {
    for (int i = 0; i < n; ++i) out[i] = (uint8_t)in[i];
  } else if (width == 4) {
    for (int i = 0; i < n / 2; ++i) out[i] = (uint8_t)((in[2 * i] & 15) | (in[2 * i + 1] & 15) << 4);
    if (n % 2) out[n / 2] = (uint8_t)(in[n - 1] & 15);
  } else {
    for (int i = 0; i < n / 4; ++i)
      out[i] =
          (uint8_t)((in[4 * i] & 3) | (in[4 * i + 1] & 3) << 2 | (in[4 * i + 2] & 3) << 4 | (in[4 * i + 3] & 3) << 6);
    if (n % 4) out[n / 4] = 0;
    for (int i = n / 4 * 4; i < n; ++i) out[i / 4] = (uint8_t)(out[i / 4] | (in[i] & 3) << (2 * (i % 4)));
  }
}

// Fields of 2 or 3 bits from any bit on; a byte behind the last field is never touched.
static inline void read_bits(const uint8_t* row, int64_t bit, int width, int n, int32_t* out) {
  for (int i = 0; i < n; ++i, bit += width) {
    uint32_t x = row[bit / 8] >> (bit % 8);
    if (bit % 8 + width > 8) x |= (uint32_t)row[bit / 8 + 1] << (8 - bit % 8);
    out[i] = sign_extend(x & ((1u << width) - 1), width);
  }
}

static inline void write_bits(uint8_t* row, int64_t bit, int width, int n, const int32_t* in) {
  uint32_t held = bit % 8 ? row[bit / 8] & ((1u << bit % 8) - 1) : 0;
  int bits = (int)(bit % 8);
  uint8_t* out = row + bit / 8;
  for (int i = 0; i < n; ++i) {
    held |= ((uint32_t)in[i] & ((1u << width) - 1)) << bits;
    bits += width;
    if (bits >= 8) *out++ = (uint8_t)held, held >>= 8, bits -= 8;
  }
  if (bits > 0) *out = (uint8_t)held;
}

// One row to v [padded channels]; `fields` is room for as many.
static inline void unpack_row(const StateLayout& s, const uint8_t* row, int32_t* fields, int32_t* v) {
  const int n = fields_of(s);
  int32_t* to = s.order ? fields : v;
  int64_t bit = 0;
  for (int i = 0; i < kHotWidthCount; ++i) {
    const int width = kHotWidths[i], count = s.count[i];
    if (count == 0) continue;
    width == 3 || bit % 8 ? read_bits(row, bit, width, count, to) : read_aligned(row + bit / 8, width, count, to);
    to += count, bit += (int64_t)width * count;
  }
  if (s.order)
    for (int i = 0; i < n; ++i) v[s.order[i]] = fields[i];
  if (s.zero)
    for (int c = 0; c < n; ++c) v[c] = (int32_t)((uint32_t)v[c] + (uint32_t)s.zero[c]);
}

static inline void pack_row(const StateLayout& s, const int32_t* v, int32_t* fields, uint8_t* row) {
  const int n = fields_of(s);
  if (s.zero)
    for (int i = 0; i < n; ++i) {
      const int c = s.order ? s.order[i] : i;
      fields[i] = (int32_t)((uint32_t)v[c] - (uint32_t)s.zero[c]);
    }
  else if (s.order)
    for (int i = 0; i < n; ++i) fields[i] = v[s.order[i]];
  const int32_t* from = s.zero || s.order ? fields : v;
  int64_t bit = 0;
  for (int i = 0; i < kHotWidthCount; ++i) {
    const int width = kHotWidths[i], count = s.count[i];
    if (count == 0) continue;
    width == 3 || bit % 8 ? write_bits(row, bit, width, count, from) : write_aligned(row + bit / 8, width, count, from);
    from += count, bit += (int64_t)width * count;
  }
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
    const int channels = fields_of(*state->layout);
    for (int p = begin; p < end; ++p) {
      for (int c = channels; c < stride; ++c) v[(int64_t)(p - begin) * stride + c] = 0;
      unpack_row(*state->layout, state->data + (int64_t)p * state->layout->row_bytes, fields,
                 v + (int64_t)(p - begin) * stride);
    }
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
