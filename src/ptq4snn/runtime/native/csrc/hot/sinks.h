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
  x.bias_stride = padded(l.cout);
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

// The rescale of 64 channels in float64: m * 2^-n and y * m are exact there (products are proven below 2^53), and
// adding 1.5 * 2^52 rounds halves to even.
struct Rescale {
  double by[kTile], lo = 0.0, hi = 0.0;

  void set(const Layer& l, int channel) {
    lo = l.lo, hi = l.hi;
    for (int c = 0; c < kTile; ++c) {
      const uint64_t power = (uint64_t)(1023 - l.rescale_n[channel + c]) << 52;
      double scale;
      std::memcpy(&scale, &power, 8);
      by[c] = l.rescale_m[channel + c] * scale;
    }
  }

  void apply(int32_t* y, int width) const {
    constexpr double kRound = 6755399441055744.0;
    for (int c = 0; c < width; ++c) {
      double x = y[c] * by[c];
      x = x < lo ? lo : x;
      x = x > hi ? hi : x;
      y[c] = (int32_t)((x + kRound) - kRound);
    }
  }
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
    const int n = min_int(kTile, l.cout - channel), width = (int)round_up(n, kUnit);
    Rescale rescale;
    if (l.rescale_m) rescale.set(l, channel);
    char* data = static_cast<char*>(out.data);
    for (int p = begin; p < end; ++p)
      for (int t = 0; t < steps; ++t) {
        const X* row = x.at(p - begin, t);
        const int32_t* bias = x.bias_at(p);
        int32_t y[kTile];
        for (int c = 0; c < width; ++c) y[c] = (int32_t)(((uint32_t)(int32_t)row[c] << x.shift) + (uint32_t)bias[c]);
        if (l.rescale_m) rescale.apply(y, width);
        const int64_t at = ((int64_t)p * steps + t) * out.channels + channel;
        write_values(y, n, out.type, data + at * size_of(out.type));
      }
  }
};

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
