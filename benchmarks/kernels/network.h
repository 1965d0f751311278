// Layers of SEW-ResNet18 for 32x32 images (stem 64, four stages of two basic blocks, ADD shortcuts) with random
// weights.
#pragma once

#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "layer.h"
#include "tap_runs.h"

namespace bench {

using namespace ptq::hot;

struct Aligned {
  void* data = nullptr;
  size_t bytes = 0;
  explicit Aligned(size_t n) : bytes(n) {
    if (posix_memalign(&data, 64, n + 64) != 0) std::abort();
  }
  Aligned(const Aligned&) = delete;
  ~Aligned() { std::free(data); }
};

// One projection with its neuron, input and output.
struct Step {
  std::string name;
  int size, cin, cout, kernel, stride, summed, bits;  // summed: spike trains that the input adds; 0: bytes
  int T;
  std::vector<int32_t> table, runs, bias, theta, zeros, ones, charge, settle, lo, hi;
  std::vector<uint64_t> in, out, state_words;
  std::vector<uint8_t> bytes, state_data;
  std::unique_ptr<Aligned> weights;
  Spikes spikes;
  Rows rows;
  Source source;
  Window window;
  Layer layer;
  Neuron neuron;
  StateLayout layout;
  State state;
  double events = 0;  // rows to add: sum over outputs of the values under their taps

  int side() const { return size / stride; }
  double macs() const { return (double)side() * side() * kernel * kernel * cin * cout * T; }

  Step(std::string n, int size_, int cin_, int cout_, int kernel_, int stride_, int summed_, int steps)
      : name(std::move(n)),
        size(size_),
        cin(cin_),
        cout(cout_),
        kernel(kernel_),
        stride(stride_),
        summed(summed_),
        bits(summed_ ? 4 : 8),
        T(steps) {}
  Step(const Step&) = delete;

  void make_table() {
    const int pad = kernel / 2;
    const Axis axis = {size, kernel, stride, pad, 1, side()};
    window = {2, {axis, axis}};
    for (int y = 0; y < side(); ++y)
      for (int x = 0; x < side(); ++x)
        for (int ky = 0; ky < kernel; ++ky)
          for (int kx = 0; kx < kernel; ++kx) {
            const int iy = y * stride + ky - pad, ix = x * stride + kx - pad;
            const bool inside = iy >= 0 && iy < size && ix >= 0 && ix < size;
            table.push_back(inside ? iy * size + ix : -1);
          }
  }

  void make_input(double rate, std::mt19937& r) {
    std::uniform_real_distribution<double> u(0, 1);
    const int words = (cin + 63) / 64, planes = summed > 1 ? 2 : 1;
    std::vector<int> counts((size_t)size * size);
    in.assign((size_t)size * size * T * planes * words, 0);
    for (int p = 0; p < size * size; ++p)
      for (int t = 0; t < T; ++t)
        for (int c = 0; c < cin; ++c) {
          int v = 0;
          for (int i = 0; i < summed; ++i) v += u(r) < rate;
          counts[p] += v;
          for (int q = 0; q < planes; ++q)
            in[(((size_t)p * T + t) * planes + q) * words + c / 64] |= (uint64_t)(v >> q & 1) << (c % 64);
        }
    for (int32_t p : table) events += p >= 0 ? counts[p] : 0;
    spikes = {in.data(), size * size, T, planes, words, cin};
    source = {&spikes, nullptr};
  }

  void make_image(std::mt19937& r) {
    bytes.resize((size_t)size * size * cin);
    for (uint8_t& b : bytes) b = (uint8_t)(r() & 255);
    rows = {bytes.data(), Type::U8, size * size, 1, cin};
    source = {nullptr, &rows};
  }

  void make_weights(std::mt19937& r) {
    const int top = 1 << (bits - 1);
    std::vector<int8_t> w((size_t)kernel * kernel * cin * cout);
    for (int8_t& x : w) x = (int8_t)((int)(r() % (unsigned)(2 * top)) - top);
    weights.reset(new Aligned(weights_bytes(kernel * kernel, cin, cout, bits)));
    pack_weights(w.data(), kernel * kernel, cin, cout, bits, weights->data);
  }

  void make_neuron(int state_bits) {
    const size_t n = (size_t)padded(cout);
    bias.assign(n, 5), theta.assign(n, 600), zeros.assign(n, 0), ones.assign(n, 1);
    charge.assign(n, 16), settle.assign(n, 5), lo.assign(n, -(1 << (state_bits - 1))),
        hi.assign(n, (1 << (state_bits - 1)) - 1);
    neuron = {cout,        theta.data(),  zeros.data(), charge.data(), zeros.data(),
              ones.data(), settle.data(), lo.data(),    hi.data(),     1,
              Reset::Hard, false,         nullptr,      false,         1 << 22};
    layout = {(cout * state_bits + 7) / 8, {0, 0, 0, 0, 0, 0}, nullptr, nullptr};
    for (int i = 0; i < kHotWidthCount; ++i) layout.count[i] = kHotWidths[i] == state_bits ? cout : 0;
    state_data.assign((size_t)side() * side() * layout.row_bytes, 0);
    state = {state_data.data(), state_data.data(), &layout};
  }

  void make(double rate, bool narrow, Path path, std::mt19937& r) {
    make_table();
    summed ? make_input(rate, r) : make_image(r);
    make_weights(r);
    make_neuron(summed ? 4 : 16);
    runs = make_runs(window);
    layer = {side() * side(),
             kernel * kernel,
             &window,
             cin,
             cout,
             weights->data,
             bits,
             summed ? 4 : 0,
             bias.data(),
             padded(cout),
             nullptr,
             summed ? narrow : false,
             nullptr,
             nullptr,
             0,
             0,
             path,
             runs.data()};
    out.assign((size_t)side() * side() * T * ((cout + 63) / 64), 0);
  }

  size_t scratch(const Kernels& k, bool with_state) const {
    return k.project_scratch(layer, source, T, layer.positions, with_state, 1);
  }

  void run(const Kernels& k, const State* s, const Aligned& scratch) {
    k.project_neuron(layer, neuron, source, T, 0, NeuronOut{out.data(), nullptr}, s, Images{1, 0, 0, 0, 0}, 0,
                     layer.positions, Scratch{scratch.data, scratch.bytes});
  }
};

typedef std::vector<std::unique_ptr<Step>> Network;

inline Network sew_resnet18(int T) {
  Network net;
  const auto add = [&](std::string n, int size, int cin, int cout, int kernel, int stride, int summed) {
    net.emplace_back(new Step(std::move(n), size, cin, cout, kernel, stride, summed, T));
  };
  add("stem", 32, 3, 64, 3, 1, 0);
  int size = 32, cin = 64;
  for (int stage = 1, cout = 64; stage <= 4; ++stage, cout *= 2) {
    const int stride = stage == 1 ? 1 : 2, before = stage == 1 ? 1 : 3;
    const std::string s = "layer" + std::to_string(stage);
    add(s + ".0.conv1", size, cin, cout, 3, stride, before);
    if (stride == 2) add(s + ".0.down", size, cin, cout, 1, 2, before);
    size /= stride;
    add(s + ".0.conv2", size, cout, cout, 3, 1, 1);
    add(s + ".1.conv1", size, cout, cout, 3, 1, 2);
    add(s + ".1.conv2", size, cout, cout, 3, 1, 1);
    cin = cout;
  }
  return net;
}

}  // namespace bench
