// Sums of a tile as rows of numbers.
#pragma once

#include "sinks.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

// The rescale of 64 channels in float64: m * 2^-n and y * m are exact there, as products are proven to
// be.
struct Rescale {
  double by[kTile];
  f64v lo, hi;

  // Channels from `channel` on, `period` of them again and again.
  void set(const Layer& l, int channel, int period) {
    lo = f64v{} + l.lo, hi = f64v{} + l.hi;
    for (int c = 0; c < kTile; ++c) {
      const int from = channel + c % period;
      const uint64_t power = (uint64_t)(1023 - l.rescale_n[from]) << 52;
      double scale;
      std::memcpy(&scale, &power, 8);
      by[c] = l.rescale_m[from] * scale;
    }
  }

  // Channels from c on.
  i32v operator()(const i32v& y, int c) const { return scaled(y, by + c, lo, hi); }
};

struct RowsSink {
  const Layer& l;
  int steps;
  const RowsOut& first;  // of image 0
  int64_t bytes;         // from one image to the next
  RowsOut out;

  void image(int i) { out.data = moved(static_cast<char*>(first.data), i * bytes); }
  void open(int, int) {}
  void close(int, int) {}

  template <class X>
  void tile(int channel, int begin, int end, const X* sums, int source_steps, int stride) {
    const Currents<X> x = currents_of(l, sums, source_steps, stride, channel);
    switch (out.type) {
      case Type::U8: return some<uint8_t>(channel, begin, end, x, 0);
      case Type::S8: return some<uint8_t>(channel, begin, end, x, 128);
      case Type::I8: return some<int8_t>(channel, begin, end, x, 0);
      case Type::I16: return some<int16_t>(channel, begin, end, x, 0);
      case Type::I32: return some<int32_t>(channel, begin, end, x, 0);
    }
  }

  template <class O, class X>
  void some(int channel, int begin, int end, const Currents<X>& x, int offset) {
    if (!l.rescale_m) return write<O, false>(channel, begin, end, x, Rescale(), offset);
    Rescale rescale;
    rescale.set(l, channel, side_by_side(x) ? out.channels : kTile);
    write<O, true>(channel, begin, end, x, rescale, offset);
  }

  // Whether rows that follow each other fill a register, as sums and as they are written.
  template <class X>
  bool side_by_side(const Currents<X>& x) const {
    const int n = out.channels;
    const bool filled = n < kLanes && kLanes % n == 0 && l.cout == n && x.position == (int64_t)steps * n;
    return filled && !x.bias_row && (x.step == n || steps == 1);
  }

  template <class O, bool rescales, class X>
  void write(int channel, int begin, int end, const Currents<X>& x, const Rescale& rescale, int offset) {
    const auto value = [&](const X* row, const int32_t* bias, int c) {
      const u32v y = ((u32v)load_lanes(row + c) << x.shift) + load<u32v>(bias + c);
      return (rescales ? rescale((i32v)y, c) : (i32v)y) + offset;
    };
    if (side_by_side(x)) return write_flat<O>(begin, end, x, value);
    const int n = min_int(kTile, l.cout - channel), whole = n - n % kLanes;
    O* to = static_cast<O*>(out.data) + (int64_t)begin * steps * out.channels + channel;
    for (int p = begin; p < end; ++p) {
      const int32_t* bias = x.bias_at(p);
      for (int t = 0; t < steps; ++t, to += out.channels) {
        const X* row = x.at(p - begin, t);
        for (int c = 0; c < whole; c += kLanes) store_lanes(to + c, value(row, bias, c));
        if (whole < n) store_some(to + whole, value(row, bias, whole), n - whole);
      }
    }
  }

  // Rows side by side, a register after the other.
  template <class O, class X, class Value>
  void write_flat(int begin, int end, const Currents<X>& x, const Value& value) {
    int32_t bias[kLanes];
    for (int c = 0; c < kLanes; ++c) bias[c] = x.bias[c % out.channels];
    const int64_t n = (int64_t)(end - begin) * steps * out.channels;
    O* to = static_cast<O*>(out.data) + (int64_t)begin * steps * out.channels;
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store_lanes(to + i, value(x.rows + i, bias, 0));
    if (i < n) store_some(to + i, value(x.rows + i, bias, 0), (int)(n - i));
  }
};

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
