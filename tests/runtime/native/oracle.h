// Brute force in int64: what every kernel must give.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "layer.h"

namespace oracle {

using namespace ptq::hot;
typedef std::vector<int64_t> Numbers;

struct Random {
  std::mt19937_64 engine;

  explicit Random(uint64_t seed) : engine(seed) {}
  int64_t between(int64_t lo, int64_t hi) { return lo + (int64_t)(engine() % (uint64_t)(hi - lo + 1)); }
  bool chance(double p) { return (double)(engine() >> 11) * 0x1p-53 < p; }
  template <class T>
  T of(std::initializer_list<T> choices) {
    return choices.begin()[between(0, (int64_t)choices.size() - 1)];
  }
};

// Values [positions][steps][channels].
struct Values {
  int positions, steps, channels;
  Numbers data;

  Values(int p, int t, int c) : positions(p), steps(t), channels(c), data((size_t)p * t * c) {}
  int64_t& at(int p, int t, int c) { return data[((size_t)p * steps + (steps > 1 ? t : 0)) * channels + c]; }
  int64_t at(int p, int t, int c) const { return const_cast<Values*>(this)->at(p, t, c); }
};

inline int64_t rshift_even(int64_t a, int n) {
  const int64_t floor = a >> n, rest = a - floor * ((int64_t)1 << n);
  if (n == 0) return a;
  const int64_t half = (int64_t)1 << (n - 1);
  return floor + (rest > half || (rest == half && floor % 2 != 0));
}

struct Projection {
  int positions, taps, cin, cout, groups, bits, shift;
  Window window = {};           // of rank 0: position p reads p
  std::vector<int32_t> table;   // its taps, one by one; empty: position p reads p
  std::vector<int8_t> weights;  // [taps][cin / groups][cout]
  std::vector<int32_t> bias, bias_row, m, n;
  int32_t lo, hi;

  int64_t sum(const Values& x, int p, int t, int o) const {
    const int each = cin / groups, group = o / (cout / groups);
    int64_t sum = 0;
    for (int k = 0; k < taps; ++k) {
      const int from = table.empty() ? p : table[(size_t)p * taps + k];
      for (int i = 0; from >= 0 && i < each; ++i)
        sum += x.at(from, t, group * each + i) * weights[((size_t)k * each + i) * cout + o];
    }
    return sum;
  }

  int64_t current(const Values& x, int p, int t, int o) const {
    const int64_t row = bias_row.empty() ? 0 : bias_row[p];
    return sum(x, p, t, o) * ((int64_t)1 << shift) + (bias.empty() ? 0 : bias[row * padded(cout) + o]);
  }

  int64_t value(const Values& x, int p, int t, int o) const {
    const int64_t y = current(x, p, t, o);
    if (m.empty()) return y;
    const int64_t r = rshift_even(y * m[o], n[o]);
    return r < lo ? lo : r > hi ? hi : r;
  }
};

struct Cells {
  int channels;
  std::vector<int32_t> theta, rho, charge_m, charge_n, settle_m, settle_n, lo, hi, element, bits, zero;
  int32_t gain;
  Reset reset;
  bool dither, wide;

  static int reverse4(int t) { return (t & 1) << 3 | (t & 2) << 1 | (t & 4) >> 1 | (t & 8) >> 3; }

  // One step of one neuron; v is updated. Returns A.
  int64_t step(int64_t current, int64_t& v, int p, int c, int t, bool& fires) const {
    const int64_t a = current * gain + rshift_even(v * charge_m[c], charge_n[c]);
    fires = a >= theta[c];
    int64_t rest = !fires || reset == Reset::None ? a : reset == Reset::Hard ? 0 : a - rho[c];
    rest *= settle_m[c];
    const int64_t number = element.empty() ? (int64_t)p * channels + c : element[(size_t)p * channels + c];
    const int64_t d = ((40503 * number + (reverse4(t % 16) << 12) + 2048) % 65536) >> (dither ? 16 - settle_n[c] : 0);
    rest = dither ? (rest + d) >> settle_n[c] : rshift_even(rest, settle_n[c]);
    v = rest < lo[c] ? lo[c] : rest > hi[c] ? hi[c] : rest;
    return a;
  }
};

}  // namespace oracle
