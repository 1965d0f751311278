// The engine's values and operations in the words of the hot kernels (layer.h).
#pragma once
#include "layer.h"
#include "rows.h"

namespace ptq {
namespace PTQ_ISA {

static inline hot::Spikes spikes_of(const View& v) {
  return {
      reinterpret_cast<const uint64_t*>(v.data), v.positions, v.steps, v.format, (int)words_of(v.channels), v.channels};
}

static inline hot::Type type_of(int format) {
  switch (format) {
    case kU8: return hot::Type::U8;
    case kS8: return hot::Type::S8;
    case kI16: return hot::Type::I16;
    default: return hot::Type::I32;
  }
}

static inline hot::Rows rows_in(const View& v) { return {v.data, type_of(v.format), v.positions, v.steps, v.channels}; }

static inline hot::RowsOut rows_out(const View& v) { return {v.data, type_of(v.format), v.steps, v.channels}; }

// A source points to its parts: they live here.
struct Input {
  hot::Spikes spikes;
  hot::Rows rows;
  hot::Source source;
  explicit Input(const View& v) : spikes(), rows(), source() {
    if (is_planes(v.format)) {
      spikes = spikes_of(v);
      source = {&spikes, nullptr};
    } else {
      rows = rows_in(v);
      source = {nullptr, &rows};
    }
  }
  Input(const Input&) = delete;
};

static inline hot::Grouped grouped_of(const Call& call) {
  const Projection& w = call.op->project;
  hot::Grouped g{};
  hot::Layer& l = g.layer;
  l.positions = call.out.positions;
  l.taps = w.taps;
  l.window = &w.window;
  l.cin = w.cin;
  l.cout = w.cout;
  l.weights = w.weights;
  l.bits = w.bits;
  l.shift = w.shift;
  l.bias = w.bias;
  l.bias_stride = hot::padded(w.cout);
  l.bias_row = w.bias_row;
  l.narrow = w.narrow != 0;
  l.rescale_m = w.rescale_m;
  l.rescale_n = w.rescale_n;
  l.lo = w.lo;
  l.hi = w.hi;
  l.runs = w.runs;
  l.expanded = w.expanded;
  l.path = call.path;
  g.groups = w.groups;
  return g;
}

static inline hot::Neuron neuron_of(const Op& op) {
  const Neurons& k = op.neuron;
  hot::Neuron n{};
  n.channels = k.channels;
  n.theta = k.numbers[kTheta];
  n.rho = k.numbers[kRho];
  n.charge_m = k.numbers[kChargeM];
  n.charge_n = k.numbers[kChargeN];
  n.settle_m = k.numbers[kSettleM];
  n.settle_n = k.numbers[kSettleN];
  n.lo = k.numbers[kLo];
  n.hi = k.numbers[kHi];
  n.gain = (int32_t)k.gain;
  n.reset = k.reset;
  n.dither = k.dither != 0;
  n.element = k.element;
  n.wide = k.wide != 0;
  n.bound = k.bound;
  return n;
}

static inline hot::NeuronOut neuron_out(const Call& call) {
  const bool reads = call.op->second >= 0;
  return {reinterpret_cast<uint64_t*>(call.out.data), reads ? reinterpret_cast<int32_t*>(call.second.data) : nullptr};
}

// The packed state of an image; `get` is null where there is none.
struct Packed {
  hot::StateLayout layout;
  hot::State state;
  bool there;
  explicit Packed(const Call& call) : layout(), state(), there(call.state != nullptr && call.op->state >= 0) {
    const Fields& f = call.op->fields;
    layout.row_bytes = (int)f.bytes;
    for (int i = 0; i < hot::kHotWidthCount; ++i) {
      layout.count[i] = 0;
      for (int j = 0; j < kWidthCount; ++j)
        if (kWidths[j] == hot::kHotWidths[i]) layout.count[i] = f.widths[j];
    }
    layout.order = f.order;
    layout.zero = f.zero;
    state = {call.state, call.state_to, &layout};
  }
  Packed(const Packed&) = delete;
  const hot::State* get() const { return there ? &state : nullptr; }
};

}  // namespace PTQ_ISA
}  // namespace ptq
