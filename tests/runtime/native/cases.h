// Random layers and neurons, and their form for the kernels. Buffers have exactly the size that layer.h asks for, so
// that the address sanitizer sees every access outside.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "oracle.h"
#include "tap_runs.h"

namespace oracle {

struct Free {
  void operator()(void* p) const { std::free(p); }
};
typedef std::unique_ptr<void, Free> Memory;

inline Memory aligned(size_t bytes) {
  void* p = nullptr;
  if (posix_memalign(&p, 64, bytes ? bytes : 1) != 0) std::abort();
  return Memory(p);
}

inline std::vector<uint64_t> pack_planes(const Values& x, int planes) {
  const int words = (x.channels + 63) / 64;
  std::vector<uint64_t> out((size_t)x.positions * x.steps * planes * words);
  for (int p = 0; p < x.positions; ++p)
    for (int t = 0; t < x.steps; ++t)
      for (int c = 0; c < x.channels; ++c)
        for (int q = 0; q < planes; ++q)
          out[(((size_t)p * x.steps + t) * planes + q) * words + c / 64] |= (uint64_t)(x.at(p, t, c) >> q & 1)
                                                                            << (c % 64);
  return out;
}

inline size_t size_of(Type t) { return t == Type::I16 ? 2 : t == Type::I32 ? 4 : 1; }
inline int64_t least(Type t) { return t == Type::U8 ? 0 : t == Type::I16 ? -32768 : t == Type::I32 ? -100000 : -128; }
inline int64_t largest(Type t) { return t == Type::U8 ? 255 : t == Type::I16 ? 32767 : t == Type::I32 ? 100000 : 127; }

inline void put_value(std::vector<uint8_t>& bytes, size_t i, Type type, int64_t value) {
  const int64_t stored = type == Type::S8 ? value + 128 : value;
  for (size_t b = 0; b < size_of(type); ++b) bytes[i * size_of(type) + b] = (uint8_t)(stored >> (8 * b));
}

inline int64_t get_value(const std::vector<uint8_t>& bytes, size_t i, Type type) {
  uint64_t x = 0;
  for (size_t b = 0; b < size_of(type); ++b) x |= (uint64_t)bytes[i * size_of(type) + b] << (8 * b);
  switch (type) {
    case Type::U8: return (int64_t)x;
    case Type::S8: return (int64_t)x - 128;
    case Type::I8: return (int8_t)x;
    case Type::I16: return (int16_t)x;
    default: return (int32_t)x;
  }
}

// An input in both forms.
struct Input {
  Values values;
  std::vector<uint64_t> words;
  std::vector<uint8_t> bytes;
  Spikes spikes;
  Rows rows;
  Source source;

  Input(Random& r, int positions, int steps, int channels, int planes, double density)
      : values(positions, steps, channels) {
    for (int64_t& v : values.data) v = r.chance(density) ? r.between(1, (1 << planes) - 1) : 0;
    words = pack_planes(values, planes);
    spikes = {words.data(), positions, steps, planes, (channels + 63) / 64, channels};
    source = {&spikes, nullptr};
  }

  Input(Random& r, int positions, int steps, int channels, Type type, int64_t limit)
      : values(positions, steps, channels) {
    const int64_t lo = std::max(least(type), -limit), hi = std::min(largest(type), limit);
    for (int64_t& v : values.data) v = r.chance(0.1) ? 0 : r.between(lo, hi);
    bytes.resize(values.data.size() * size_of(type));
    for (size_t i = 0; i < values.data.size(); ++i) put_value(bytes, i, type, values.data[i]);
    rows = {bytes.data(), type, positions, steps, channels};
    source = {nullptr, &rows};
  }

  Input(const Input&) = delete;
};

// Taps of a window, by the definition of it: [outputs][kernels], -1 outside.
inline std::vector<int32_t> taps_of(const Window& w) {
  std::vector<int32_t> out = {0};
  int outputs = 1, taps = 1;
  for (int a = 0; a < w.rank; ++a) {
    const Axis& x = w.axes[a];
    std::vector<int32_t> more;
    for (int o = 0; o < outputs * x.out; ++o)
      for (int k = 0; k < taps * x.kernel; ++k) {
        const int before = out[(size_t)(o / x.out) * taps + k / x.kernel];
        const int from = o % x.out * x.stride - x.before + k % x.kernel * x.dilation;
        more.push_back(before < 0 || from < 0 || from >= x.size ? -1 : before * x.size + from);
      }
    out = more, outputs *= x.out, taps *= x.kernel;
  }
  return out;
}

// Any window over an axis, also one that reads little of it, or nothing.
inline Axis random_axis(Random& r, int size) {
  const int kernel = (int)r.of({1, 2, 3, 3, 3, 4}), stride = (int)r.of({1, 1, 2, 3}),
            dilation = (int)r.of({1, 1, 1, 2});
  const int before = (int)r.between(0, kernel), usual = (size + 2 * before - dilation * (kernel - 1) - 1) / stride + 1;
  return {size, kernel, stride, before, dilation, (int)(usual < 1 || r.chance(0.1) ? r.between(1, 7) : usual)};
}

// A convolution over an image of height x width, or one row of it; or over the same positions on three axes.
inline void convolve(Random& r, int height, int width, Projection& p) {
  std::vector<int> sizes = {height, width};
  if (height == 1) sizes = {width};
  if (height == 6 && r.chance(0.5)) sizes = {2, 3, width};
  p.taps = p.positions = 1;
  for (int size : sizes) {
    const Axis x = random_axis(r, size);
    p.window.axes[p.window.rank++] = x;
    p.taps *= x.kernel, p.positions *= x.out;
  }
  p.table = taps_of(p.window);
}

inline Projection random_projection(Random& r, int height, int width, int cin, int cout, int groups, int bits) {
  Projection p;
  p.cin = cin, p.cout = cout, p.groups = groups, p.bits = bits, p.shift = (int)r.between(0, 4);
  p.taps = 1, p.positions = height * width;
  if (!r.chance(0.2)) convolve(r, height, width, p);
  p.weights.resize((size_t)p.taps * (cin / groups) * cout);
  const bool extreme = r.chance(0.2);
  const int top = 1 << (bits - 1);
  for (int8_t& w : p.weights) w = (int8_t)(extreme ? (r.chance(0.9) ? -top : top - 1) : r.between(-top, top - 1));
  if (r.chance(0.8)) {  // a bias, at times one that changes with the position
    const int rows = (int)r.between(1, 3);
    for (int i = 0; i < rows * padded(cout); ++i) p.bias.push_back((int32_t)r.between(-500, 500));
    for (int i = 0; rows > 1 && i < p.positions; ++i) p.bias_row.push_back((int32_t)r.between(0, rows - 1));
  }
  p.lo = p.hi = 0;
  return p;
}

inline void add_rescale(Random& r, Projection& p, Type out) {
  for (int c = 0; c < padded(p.cout); ++c) {
    p.m.push_back((int32_t)r.between(1 << 14, (1 << 15) - 1));
    p.n.push_back((int32_t)(r.chance(0.1) ? 0 : r.between(14, 24)));
  }
  p.lo = (int32_t)least(out), p.hi = (int32_t)largest(out);
}

// Weights packed and, mostly, the window read from the input's side: without that events are not followed.
struct PackedLayer {
  Memory weights, expanded;
  std::vector<int32_t> runs;
  Layer layer;

  PackedLayer(const Projection& p, bool narrow, Path path, bool with_runs) {
    const int each = p.cin / p.groups;
    weights = aligned(weights_bytes(p.taps, each, p.cout, p.bits));
    pack_weights(p.weights.data(), p.taps, each, p.cout, p.bits, weights.get());
    layer = {p.positions,
             p.taps,
             &p.window,
             p.cin,
             p.cout,
             weights.get(),
             p.bits,
             p.shift,
             p.bias.empty() ? nullptr : p.bias.data(),
             padded(p.cout),
             p.bias_row.empty() ? nullptr : p.bias_row.data(),
             narrow,
             p.m.empty() ? nullptr : p.m.data(),
             p.n.empty() ? nullptr : p.n.data(),
             p.lo,
             p.hi,
             path,
             nullptr,
             nullptr};
    if (p.window.rank == 0 || !with_runs) return;
    runs = make_runs(p.window);
    layer.runs = runs.data();
  }

  // Weights that stay expanded, as a level makes them.
  void expand(const Kernels& k) {
    if (layer.window->rank > 0 && !layer.runs) return;
    expanded = aligned(k.expanded_bytes(layer));
    k.expand_weights(layer, static_cast<uint8_t*>(expanded.get()));
    layer.expanded = static_cast<const uint8_t*>(expanded.get());
  }
};

inline Cells random_cells(Random& r, int channels, int64_t scale, int positions) {
  Cells n;
  n.channels = channels, n.gain = (int32_t)(r.chance(0.7) ? 1 : r.between(2, 9));
  n.reset = r.of({Reset::Hard, Reset::Soft, Reset::None});
  n.dither = r.chance(0.3), n.wide = r.chance(0.2) || scale > (1 << 24);
  const bool plain = r.chance(0.5), one_width = r.chance(0.5), zeros = r.chance(0.5);
  const int all = (int)r.of({2, 3, 4, 8, 16});
  for (int c = 0; c < padded(channels); ++c) {
    const int bits = one_width ? all : (int)r.of({2, 3, 4, 8, 16, 32});
    const int n_settle = (int)r.between(0, 10);
    const int32_t zero = (int32_t)(zeros || r.chance(0.5) ? 0 : r.between(-3, 3));
    const int64_t top = bits == 32 ? (1 << 18) : (int64_t)1 << (bits - 1);
    n.bits.push_back(bits), n.zero.push_back(zero);
    n.lo.push_back((int32_t)(zero - top)), n.hi.push_back((int32_t)(zero + top - 1));
    n.theta.push_back((int32_t)r.between(-scale / 8, scale)), n.rho.push_back((int32_t)r.between(0, scale));
    n.charge_m.push_back((int32_t)(plain ? 1 << r.between(0, 6) : r.between(0, 255)));
    n.charge_n.push_back((int32_t)(plain ? 0 : r.between(0, 8)));
    n.settle_m.push_back((int32_t)(plain ? 1 : r.between(1, 7)));
    n.settle_n.push_back(n_settle);
  }
  if (r.chance(0.3))
    for (int i = 0; i < positions * channels; ++i) n.element.push_back((int32_t)r.between(0, 1 << 20));
  return n;
}

inline Neuron neuron_of(const Cells& n, int64_t bound) {
  return {n.channels,
          n.theta.data(),
          n.rho.data(),
          n.charge_m.data(),
          n.charge_n.data(),
          n.settle_m.data(),
          n.settle_n.data(),
          n.lo.data(),
          n.hi.data(),
          n.gain,
          n.reset,
          n.dither,
          n.element.empty() ? nullptr : n.element.data(),
          n.wide,
          bound};
}

// Packed rows of state as docs say: an independent, bit by bit version.
struct PackedState {
  std::vector<int32_t> order, zero;
  StateLayout layout;
  std::vector<uint8_t> data, left;
  State state;
  const Cells& cells;

  // `apart`: neurons leave states elsewhere, and those that they began with stay.
  PackedState(const Cells& n, int positions, bool apart) : zero(n.zero), cells(n) {
    int bits = 0;
    for (int i = 0; i < kHotWidthCount; ++i) {
      layout.count[i] = 0;
      for (int c = 0; c < n.channels; ++c)
        if (n.bits[c] == kHotWidths[i]) order.push_back(c), bits += kHotWidths[i], ++layout.count[i];
    }
    layout.row_bytes = (bits + 7) / 8;
    bool identity = true;
    for (int i = 0; i < n.channels; ++i) identity = identity && order[i] == i;
    layout.order = identity ? nullptr : order.data();
    layout.zero = std::all_of(zero.begin(), zero.end(), [](int32_t z) { return z == 0; }) ? nullptr : zero.data();
    data.resize((size_t)positions * layout.row_bytes);
    if (apart) left.resize(data.size(), 0xaa);
    state = {data.data(), apart ? left.data() : data.data(), &layout};
  }
  PackedState(const PackedState&) = delete;

  void put(int p, const int64_t* v) {
    uint8_t* row = data.data() + (size_t)p * layout.row_bytes;
    for (int i = 0; i < layout.row_bytes; ++i) row[i] = 0;
    int at = 0;
    for (int c : order)
      for (int b = 0; b < cells.bits[c]; ++b, ++at)
        row[at / 8] = (uint8_t)(row[at / 8] | ((uint64_t)(v[c] - zero[c]) >> b & 1) << (at % 8));
  }
};

}  // namespace oracle
