// Neurons that the hot kernels do not take, in int64; packed rows of state.
#pragma once
#include "dither.h"
#include "time_sums.h"

namespace ptq {
namespace PTQ_ISA {

// Fields of a packed row to out[order], zero points added.
static void unpack_state(const Fields& f, const uint8_t* row, int64_t* out) {
  int64_t bit = 0;
  int field = 0;
  for (int group = 0; group < kWidthCount; ++group)
    for (int i = 0; i < f.widths[group]; ++i, ++field) {
      const int width = kWidths[group];
      uint64_t raw = 0;
      for (int b = 0; b < width; ++b, ++bit) raw |= (uint64_t)((row[bit >> 3] >> (bit & 7)) & 1) << b;
      const int64_t sign = (int64_t)1 << (width - 1);
      const int at = f.order ? f.order[field] : field;
      out[at] = (((int64_t)raw ^ sign) - sign) + (f.zero ? f.zero[at] : 0);
    }
}

static void pack_state(const Fields& f, const int64_t* in, uint8_t* row) {
  std::memset(row, 0, (size_t)f.bytes);
  int64_t bit = 0;
  int field = 0;
  for (int group = 0; group < kWidthCount; ++group)
    for (int i = 0; i < f.widths[group]; ++i, ++field) {
      const int at = f.order ? f.order[field] : field;
      const uint64_t raw = (uint64_t)(in[at] - (f.zero ? f.zero[at] : 0));
      for (int b = 0; b < kWidths[group]; ++b, ++bit)
        row[bit >> 3] = (uint8_t)(row[bit >> 3] | ((raw >> b) & 1) << (bit & 7));
    }
}

// A sample's state packed as one row, to and from a value [positions][channels].
static void load_state(const Call& call) {
  const int64_t n = (int64_t)call.out.positions * call.out.channels;
  int64_t* flat = reinterpret_cast<int64_t*>(call.scratch);
  if (call.state != nullptr)
    unpack_state(call.op->fields, call.state, flat);
  else
    std::memset(flat, 0, (size_t)n * 8);
  for (int p = 0; p < call.out.positions; ++p) encode(call.out, p, 0, flat + (int64_t)p * call.out.channels);
}

static void store_state(const Call& call) {
  if (call.state == nullptr) return;
  const View& in = call.in[0];
  int64_t* flat = reinterpret_cast<int64_t*>(call.scratch);
  for (int p = 0; p < in.positions; ++p) decode(in, p, 0, flat + (int64_t)p * in.channels);
  pack_state(call.op->fields, flat, call.state_to);
}

// x in units, corrected where it is a sum over other steps than at calibration.
static void incoming(const Call& call, int p, int t, int64_t* x) {
  const Op& op = *call.op;
  const int n = call.out.channels;
  decode(call.in[0], p, t, x);
  for (int c = 0; c < n; ++c) x[c] *= op.neuron.gain;
  const int64_t total = call.first_step + call.steps;
  if (op.steps == 0 || op.steps == total) return;
  const double by = (double)op.steps / (double)total;
  for (int c = 0; c < n; ++c) x[c] = nearest((double)x[c] * by);
}

// floor(a / theta), 0 .. most; theta is positive.
static int64_t thresholds_in(int64_t a, int64_t theta, int64_t most) {
  if (a < theta) return 0;
  const int64_t n = a / theta;
  return n < most ? n : most;
}

// One step of the row of position p: x becomes A, v is updated, s are the spikes.
static void neuron_step(const Call& call, int p, int64_t t, int64_t* x, int64_t* v, int64_t* s) {
  const Neurons& k = call.op->neuron;
  const int n = call.out.channels;
  for (int c = 0; c < n; ++c) {
    const int64_t e = (int64_t)p * n + c;
    const int ch = k.channel ? k.channel[e] : c;
    const int64_t a = x[c] + rshift_even(v[c] * k.wide_numbers[kChargeM][ch], (int)k.wide_numbers[kChargeN][ch]);
    const int64_t theta = k.wide_numbers[kTheta][ch];
    s[c] = k.most == 1 ? a >= theta : thresholds_in(a, theta, k.most);
    int64_t rest = a;
    if (s[c])
      rest = k.reset == hot::Reset::Hard ? 0 : k.reset == hot::Reset::Soft ? a - k.wide_numbers[kRho][ch] * s[c] : a;
    rest *= k.wide_numbers[kSettleM][ch];
    const int shift = (int)k.wide_numbers[kSettleN][ch];
    const int64_t number = k.element ? k.element[e] : e;
    rest = k.dither ? (rest + dither_offset((uint32_t)number, t, shift)) >> shift : rshift_even(rest, shift);
    const int64_t lo = k.wide_numbers[kLo][ch], hi = k.wide_numbers[kHi][ch];
    v[c] = rest < lo ? lo : rest > hi ? hi : rest;
    x[c] = a;
  }
}

// a / 2^n, halves to even, without a branch; `some` is 1 where n is not 0.
static inline int64_t rounded(int64_t a, int64_t n, int64_t some) {
  const int64_t half = (((int64_t)1 << n) >> 1) - some;
  return (a + half + ((a >> n) & some)) >> n;
}

// The numbers of neurons that follow each other.
struct NumbersFrom {
  const int64_t *charge_m, *charge_n, *settle_m, *settle_n, *theta, *rho, *lo, *hi;

  NumbersFrom(const Neurons& k, int first)
      : charge_m(k.wide_numbers[kChargeM] + first),
        charge_n(k.wide_numbers[kChargeN] + first),
        settle_m(k.wide_numbers[kSettleM] + first),
        settle_n(k.wide_numbers[kSettleN] + first),
        theta(k.wide_numbers[kTheta] + first),
        rho(k.wide_numbers[kRho] + first),
        lo(k.wide_numbers[kLo] + first),
        hi(k.wide_numbers[kHi] + first) {}
};

#if defined(PTQ_AVX512)
// a / 2^n, halves to even.
template <class V>
static inline V rounded_all(V a, V n) {
  const V some = (n > 0) & 1, half = (((V{} + 1) << n) >> 1) - some;
  return (a + half + ((a >> n) & some)) >> n;
}

// The elements of a vector from c on.
template <hot::Reset reset, class V>
static inline void vector_step(const NumbersFrom& k, int c, int64_t* x, int64_t* v, int64_t* s) {
  using hot::PTQ_ISA::load;
  using hot::PTQ_ISA::store;
  const V a = load<V>(x + c) + rounded_all(load<V>(v + c) * load<V>(k.charge_m + c), load<V>(k.charge_n + c));
  const V fires = a >= load<V>(k.theta + c);
  V rest = reset == hot::Reset::Hard ? a & ~fires : reset == hot::Reset::Soft ? a - (load<V>(k.rho + c) & fires) : a;
  rest = rounded_all(rest * load<V>(k.settle_m + c), load<V>(k.settle_n + c));
  const V lo = load<V>(k.lo + c), hi = load<V>(k.hi + c);
  rest = rest < lo ? lo : rest;
  store(v + c, rest > hi ? hi : rest), store(x + c, a), store(s + c, fires & 1);
}
#endif

// The same as `neuron_step` where the elements of a row have the numbers from `first` on, fire at most once, and
// nothing is dithered.
template <hot::Reset reset>
static void plain_step(const Neurons& numbers, int first, int n, int64_t* __restrict x, int64_t* __restrict v,
                       int64_t* __restrict s) {
  const NumbersFrom k(numbers, first);
  int c = 0;
#if defined(PTQ_AVX512)
  typedef int64_t Four64 __attribute__((vector_size(32)));
  for (; c + 8 <= n; c += 8) vector_step<reset, Eight64>(k, c, x, v, s);
  for (; c + 4 <= n; c += 4) vector_step<reset, Four64>(k, c, x, v, s);
#endif
  for (; c < n; ++c) {
    const int64_t a = x[c] + rounded(v[c] * k.charge_m[c], k.charge_n[c], k.charge_n[c] > 0);
    const int64_t fires = a >= k.theta[c];
    int64_t rest = reset == hot::Reset::Hard   ? a & (fires - 1)
                   : reset == hot::Reset::Soft ? a - (k.rho[c] & -fires)
                                               : a;
    rest = rounded(rest * k.settle_m[c], k.settle_n[c], k.settle_n[c] > 0);
    rest = rest < k.lo[c] ? k.lo[c] : rest;
    v[c] = rest > k.hi[c] ? k.hi[c] : rest;
    x[c] = a, s[c] = fires;
  }
}

// The channel of the first element of a row whose elements are of channels that follow each other; else -1.
static int first_channel(const Neurons& k, int p, int n) {
  if (!k.channel) return 0;
  const int32_t* row = k.channel + (int64_t)p * n;
  int32_t other = 0;
  for (int c = 0; c < n; ++c) other |= row[c] - row[0] - c;
  return other ? -1 : row[0];
}

// `first`: of the row, as above.
static void any_step(const Call& call, int p, int first, int64_t t, int64_t* x, int64_t* v, int64_t* s) {
  const Neurons& k = call.op->neuron;
  if (first < 0 || k.most != 1 || k.dither) return neuron_step(call, p, t, x, v, s);
  switch (k.reset) {
    case hot::Reset::Hard: return plain_step<hot::Reset::Hard>(k, first, call.out.channels, x, v, s);
    case hot::Reset::Soft: return plain_step<hot::Reset::Soft>(k, first, call.out.channels, x, v, s);
    default: return plain_step<hot::Reset::None>(k, first, call.out.channels, x, v, s);
  }
}

// The state of position p in units, before the step; `out` has room for it.
static void hand_on(const Call& call, int p, int t, const int64_t* v, int64_t* out) {
  const Neurons& k = call.op->neuron;
  const int n = call.out.channels;
  for (int c = 0; c < n; ++c) {
    const int ch = k.channel ? k.channel[(int64_t)p * n + c] : c;
    out[c] = rshift_even(v[c] * k.lift_m[ch], (int)k.lift_n[ch]);
  }
  encode(call.second, p, t, out);
}

// Whether neurons see one step and keep nothing: what they fire then depends on x alone.
static bool only_compares(const Call& call) {
  const Op& op = *call.op;
  const Neurons& k = op.neuron;
  const bool kept = (op.state >= 0 && call.state != nullptr) || op.inputs == 2 || op.second >= 0 || k.carried;
  const bool plain = !k.channel && k.most == 1 && (op.steps == 0 || op.steps == call.first_step + call.steps);
  const bool rows = call.in[0].format == kI64 && call.out.format == 1 && call.out.channels % kEight == 0;
  return !kept && plain && rows && call.out.steps == 1;
}

static void compare_rows(const Call& call, int begin, int end) {
  using hot::PTQ_ISA::load;
  const Neurons& k = call.op->neuron;
  const int n = call.out.channels;
  const int64_t* theta = k.wide_numbers[kTheta];
  for (int p = begin; p < end; ++p) {
    const int64_t* x = reinterpret_cast<const int64_t*>(row_of(call.in[0], p, 0));
    uint64_t* words = reinterpret_cast<uint64_t*>(row_of_mutable(call.out, p, 0));
    std::memset(words, 0, (size_t)call.out.row);
    for (int c = 0; c < n; c += kEight)
      words[c / 64] |= (uint64_t)bits_of(load<Eight64>(x + c) * k.gain >= load<Eight64>(theta + c)) << (c % 64);
  }
}

// The state of a position: packed, or an input [positions][channels] that was loaded before.
static void neuron_any(const Call& call, int begin, int end) {
  if (only_compares(call)) return compare_rows(call, begin, end);
  const Op& op = *call.op;
  const int n = call.out.channels;
  const bool loaded = op.inputs == 2;
  Piece piece{call.scratch};
  int64_t *x = piece.take<int64_t>(n), *v = piece.take<int64_t>(n), *s = piece.take<int64_t>(n);
  const bool kept = op.state >= 0 && call.state != nullptr;
  for (int p = begin; p < end; ++p) {
    for (int c = 0; c < n; ++c) v[c] = 0;
    if (kept) unpack_state(op.fields, call.state + p * op.fields.bytes, v);
    if (loaded) decode(call.in[1], p, 0, v);
    const int first = first_channel(op.neuron, p, n);
    for (int t = 0; t < call.out.steps; ++t) {
      incoming(call, p, t, x);
      if (op.neuron.carried) hand_on(call, p, t, v, s);
      any_step(call, p, first, op.neuron.once ? t : call.first_step + t, x, v, s);
      encode(call.out, p, t, s);
      if (op.second >= 0 && !op.neuron.carried) encode(call.second, p, t, x);
    }
    if (kept) pack_state(op.fields, v, call.state_to + p * op.fields.bytes);
    if (loaded) encode(call.in[1], p, 0, v);
  }
}

}  // namespace PTQ_ISA
}  // namespace ptq
