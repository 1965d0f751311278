// What happens to the sums of a tile: neurons, or rows of numbers.
#pragma once

#include "neuron.h"
#include "values.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

static inline const int32_t* no_bias() {
  alignas(64) static const int32_t kZeros[kTile] = {};
  return kZeros;
}

template <class X>
static Currents<X> currents_of(const Layer& l, const X* sums, int source_steps, int channel) {
  Currents<X> x;
  x.rows = sums, x.position = (int64_t)source_steps * kTile, x.step = source_steps > 1 ? kTile : 0;
  x.shift = l.shift;
  x.bias = l.bias ? l.bias + channel : no_bias();
  x.bias_row = l.bias ? l.bias_row : nullptr;
  x.bias_stride = l.bias_stride;
  return x;
}

template <class T>
static inline T* moved(T* p, int64_t bytes) {
  return p ? reinterpret_cast<T*>(reinterpret_cast<char*>(p) + bytes) : nullptr;
}

struct NeuronSink {
  const Layer& l;
  const Neuron& n;
  int steps, first_step;
  const NeuronOut& first;  // of image 0
  const State* kept;
  const Images& images;
  NeuronOut out;
  State state;
  States states;
  Way way;

  NeuronSink(const Layer& layer, const Neuron& neuron, int steps_, int first_step_, const NeuronOut& o, const State* s,
             const Images& images_, int positions, Arena& arena)
      : l(layer),
        n(neuron),
        steps(steps_),
        first_step(first_step_),
        first(o),
        kept(s),
        images(images_),
        out(o),
        state(s ? *s : State()),
        states(s ? &state : nullptr, layer.cout, positions, arena),
        way(way_of(neuron, o)) {}
  NeuronSink(const NeuronSink&) = delete;

  void image(int i) {
    out = {moved(first.spikes, i * images.out), moved(first.potential, i * images.potential)};
    if (kept) state.data = kept->data + i * images.state;
  }

  void open(int begin, int end) { states.open(begin, end); }
  void close(int begin, int end) { states.close(begin, end); }

  template <class X>
  void tile(int channel, int begin, int end, const X* sums, int source_steps) {
    const NeuronCall call = {n, steps, first_step, out, begin, end, channel, states.held.from_channel(channel)};
    neuron_tile(call, currents_of(l, sums, source_steps, channel), way);
  }
};

// The rescale of 64 channels in float64: m * 2^-n and y * m are exact there, as products are proven to
// be.
struct Rescale {
  double by[kTile];
  f64v lo, hi;

  void set(const Layer& l, int channel) {
    lo = f64v{} + l.lo, hi = f64v{} + l.hi;
    for (int c = 0; c < kTile; ++c) {
      const uint64_t power = (uint64_t)(1023 - l.rescale_n[channel + c]) << 52;
      double scale;
      std::memcpy(&scale, &power, 8);
      by[c] = l.rescale_m[channel + c] * scale;
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
  void tile(int channel, int begin, int end, const X* sums, int source_steps) {
    const Currents<X> x = currents_of(l, sums, source_steps, channel);
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
    rescale.set(l, channel);
    write<O, true>(channel, begin, end, x, rescale, offset);
  }

  template <class O, bool rescales, class X>
  void write(int channel, int begin, int end, const Currents<X>& x, const Rescale& rescale, int offset) {
    const int n = min_int(kTile, l.cout - channel), whole = n - n % kLanes;
    O* to = static_cast<O*>(out.data) + (int64_t)begin * steps * out.channels + channel;
    for (int p = begin; p < end; ++p) {
      const int32_t* bias = x.bias_at(p);
      for (int t = 0; t < steps; ++t, to += out.channels) {
        const X* row = x.at(p - begin, t);
        const auto value = [&](int c) {
          const u32v y = ((u32v)load_lanes(row + c) << x.shift) + load<u32v>(bias + c);
          return (rescales ? rescale((i32v)y, c) : (i32v)y) + offset;
        };
        for (int c = 0; c < whole; c += kLanes) store_lanes(to + c, value(c));
        if (whole < n) {
          O rest[kLanes];
          store_lanes(rest, value(whole));
          std::memcpy(to + whole, rest, sizeof(O) * (size_t)(n - whole));
        }
      }
    }
  }
};

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
