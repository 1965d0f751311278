// Packed rows of state to and from int32 Vq.
#pragma once

#include "fields.h"
#include "held.h"

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
static inline void read_aligned(const uint8_t* in, int width, int n, int32_t* __restrict out) {
  if (width == 32) {
    std::memcpy(out, in, (size_t)n * 4);
  } else if (width == 16) {
    for (int i = 0; i < n; ++i) out[i] = load<int16_t>(in + 2 * i);
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
static inline void write_aligned(uint8_t* __restrict out, int width, int n, const int32_t* in) {
  if (width == 32) {
    std::memcpy(out, in, (size_t)n * 4);
  } else if (width == 16) {
    for (int i = 0; i < n; ++i) store(out + 2 * i, (int16_t)in[i]);
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

// v = x + zero, and back; null: no zero points.
static inline void add_zeros(const int8_t* x, const int32_t* zero, int n, int32_t* __restrict v) {
  if (zero)
    for (int c = 0; c < n; ++c) v[c] = (int32_t)((uint32_t)x[c] + (uint32_t)zero[c]);
  else
    for (int c = 0; c < n; ++c) v[c] = x[c];
}

static inline void take_zeros(const int32_t* v, const int32_t* zero, int n, uint8_t* __restrict x) {
  if (zero)
    for (int c = 0; c < n; ++c) x[c] = (uint8_t)((uint32_t)v[c] - (uint32_t)zero[c]);
  else
    for (int c = 0; c < n; ++c) x[c] = (uint8_t)v[c];
}

// Rows whose fields are at most 8 bits wide, by way of bytes.
struct SmallRows {
  const StateLayout* layout;
  int n;
  bool exact;  // nothing is read or written behind a row
  int32_t* inverse;
  uint8_t *row, *fields, *bytes;
  Moves to_channels, to_fields;

  void take(int channels, Arena& arena) {
    n = channels;
    inverse = arena.take<int32_t>((size_t)n);
    row = arena.take<uint8_t>((size_t)n + 64);
    fields = arena.take<uint8_t>((size_t)round_up(n, 128) + 64);  // a width may end inside of a word
    bytes = arena.take<uint8_t>((size_t)round_up(n, 128));
    to_channels.take(n, arena), to_fields.take(n, arena);
  }

  // Whether the rows are such ones; then they can be read and written.
  bool set(const StateLayout* s) {
    layout = s;
    if (s->count[0] || s->count[1] || n != fields_of(*s) || n > Moves::kMost) return false;  // 32 and 16 bits
    exact = (n == s->count[2] || n == s->count[3]) && n % 64 == 0;                           // all of 8 or of 4
    if (!s->order) return true;
    std::memset(inverse, 0, sizeof(int32_t) * (size_t)n);
    for (int i = 0; i < n; ++i) inverse[s->order[i]] = i;
    to_channels.set(inverse), to_fields.set(s->order);
    return true;
  }

  // `room`: bytes of this row and of those behind it that may be read, or written before they are.
  bool in_place(int64_t room) const { return exact || room >= layout->row_bytes + 8; }

  // Bytes of the channels in their order, in `bytes` or `fields`, or in `out` where it has room for whole tables.
  uint8_t* unpack(const uint8_t* packed, int64_t room, uint8_t* out) const {
    const uint8_t* from = packed;
    if (!in_place(room)) from = static_cast<const uint8_t*>(std::memcpy(row, packed, (size_t)layout->row_bytes));
    uint8_t *const first = layout->order || !out ? fields : out, *to = first;
    int64_t bit = 0;
    for (int i = 0; i < kHotWidthCount; ++i) {
      const int width = kHotWidths[i], count = layout->count[i];
      if (count) read_fields(from, bit, width, count, to);
      to += count, bit += (int64_t)width * count;
    }
    if (!layout->order) return first;
    to_channels(fields, out ? out : bytes);
    return out ? out : bytes;
  }

  void pack(const uint8_t* in, int64_t room, uint8_t* packed) const {
    const bool here = in_place(room);
    if (layout->order) to_fields(in, fields);
    const uint8_t* from = layout->order ? fields : in;
    uint8_t* to = here ? packed : row;
    int64_t bit = 0;
    for (int i = 0; i < kHotWidthCount; ++i) {
      const int width = kHotWidths[i], count = layout->count[i];
      if (count) write_fields(to, bit, width, count, from);
      from += count, bit += (int64_t)width * count;
    }
    if (!here) std::memcpy(packed, row, (size_t)layout->row_bytes);
  }
};

// States of a block of positions for neurons: where they are if they can be read there, else unpacked, as bytes if they
// fit.
struct States {
  const State* state;  // null: neurons begin at 0 and nothing is kept
  int channels;
  char* memory;
  int32_t* fields;
  SmallRows rows;
  Held held;
  enum class Form { None, InPlace, Block, Bytes, Small, Any } form;
  int width;  // of a block: bits

  States(const State* s, int channels_, int positions, Arena& arena)
      : state(s), channels(channels_), memory(nullptr), fields(nullptr), rows(), held(), form(Form::None), width(0) {
    if (!s) return;
    const int stride = (int)round_up(channels, 128);  // whole tables of `Moves`
    memory = arena.take<char>((size_t)positions * stride * sizeof(int32_t) + 64);
    fields = arena.take<int32_t>((size_t)stride);
    rows.take(channels, arena);
    if (s->layout) set_form(*s->layout, stride);
  }

  void set_form(const StateLayout& s, int stride) {
    const bool plain = !s.order && !s.zero && channels % kUnit == 0 && fields_of(s) == channels;
    for (int i = 0; plain && i < kHotWidthCount; ++i)
      if (s.count[i] == channels && Held::reads(kHotWidths[i]))
        form = Form::InPlace, held = Held(nullptr, kHotWidths[i], s.row_bytes);
    for (int i = 0; plain && i < kHotWidthCount; ++i)  // rows of 2 bits, without a gap
      if (s.count[i] == channels && kHotWidths[i] == 2)
        form = Form::Block, width = kHotWidths[i], held = Held(memory, 8, channels);
    if (form != Form::None) return;
    form = !rows.set(&s) ? Form::Any : s.zero ? Form::Small : Form::Bytes;
    held = form == Form::Bytes ? Held(memory, 8, stride) : Held(memory, 32, 4 * (int64_t)stride);
  }

  int64_t row(int p) const { return (int64_t)p * state->layout->row_bytes; }  // in bytes

  void open(int begin, int end) {
    if (!state) return;
    const uint8_t* const first = state->from + row(begin);
    if (form == Form::InPlace) return held.set(first, state->to + row(begin));
    uint8_t* all = reinterpret_cast<uint8_t*>(memory);
    if (form == Form::Block) return read_block(first, width, (int64_t)(end - begin) * channels, all);
    const int read = (int)round_up(channels, kUnit);  // what neurons read
    for (int p = begin; p < end; ++p) {
      uint8_t* at = all + held.place(p - begin, 0);
      int32_t* v = reinterpret_cast<int32_t*>(at);
      const uint8_t* const packed = state->from + row(p);
      const int64_t room = row(end) - row(p);
      if (form == Form::Bytes) {
        rows.unpack(packed, room, at);
        continue;
      }
      for (int c = channels; c < read; ++c) v[c] = 0;
      if (form == Form::Small)
        add_zeros(reinterpret_cast<int8_t*>(rows.unpack(packed, room, nullptr)), state->layout->zero, channels, v);
      else
        unpack_row(*state->layout, packed, fields, v);
    }
  }

  void close(int begin, int end) {
    if (!state || form == Form::InPlace) return;
    const uint8_t* all = reinterpret_cast<const uint8_t*>(memory);
    if (form == Form::Block) return write_block(state->to + row(begin), width, (int64_t)(end - begin) * channels, all);
    for (int p = begin; p < end; ++p) {
      const uint8_t* at = all + held.place(p - begin, 0);
      const int32_t* v = reinterpret_cast<const int32_t*>(at);
      uint8_t* const packed = state->to + row(p);
      const int64_t room = row(end) - row(p);
      if (form == Form::Any) {
        pack_row(*state->layout, v, fields, packed);
        continue;
      }
      if (form == Form::Small) take_zeros(v, state->layout->zero, channels, rows.bytes);
      rows.pack(form == Form::Small ? rows.bytes : at, room, packed);
    }
  }
};

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
