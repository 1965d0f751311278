// Neurons in int32, or in int64 where products may leave it.
#pragma once

#include "../dither.h"
#include "neuron_call.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

// Products in int64, one channel after another.
template <class X>
static void neuron_wide(const NeuronCall& call, const Currents<X>& x, int unit) {
  const Neuron& n = call.n;
  const int c0 = call.channel + unit;
  const BitsOut spikes(call, unit);
  const Held held = call.v.behind(0, unit);
  for (int p = call.begin; p < call.end; ++p) {
    i32v v[kUnitVectors] = {};
    int64_t s[kUnit];
    held.get_any(p - call.begin, v);
    for (int i = 0; i < kUnit; ++i) s[i] = v[i / kLanes][i % kLanes];
    for (int t = 0; t < call.steps; ++t) {
      const X* row = x.at(p - call.begin, t) + unit;
      uint32_t bits = 0;
      int32_t potential[kUnit] = {};
      for (int i = 0; i < min_int(kUnit, call.valid() - unit); ++i) {
        const int c = c0 + i;
        const int64_t current = (int64_t)row[i] * ((int64_t)1 << x.shift) + x.bias_at(p)[unit + i];
        int64_t a = current * n.gain + rshift_even(s[i] * n.charge_m[c], n.charge_n[c]);
        potential[i] = (int32_t)a;
        if (a >= n.theta[c]) {
          bits |= 1u << i;
          a = n.reset == Reset::Hard ? 0 : n.reset == Reset::Soft ? a - n.rho[c] : a;
        }
        a *= n.settle_m[c];
        const int shift = n.settle_n[c];
        a = n.dither ? (a + dither_offset(element_of(n, p, c), call.first_step + t, shift)) >> shift
                     : rshift_even(a, shift);
        s[i] = a < n.lo[c] ? n.lo[c] : a > n.hi[c] ? n.hi[c] : a;
      }
      if (call.out.spikes) spikes.put(bits, ((int64_t)(p - call.begin) * call.steps + t) * spikes.row);
      if (call.out.potential) put_potential(call, p, t, unit, potential);
    }
    for (int i = 0; i < kUnit; ++i) v[i / kLanes][i % kLanes] = (int32_t)s[i];
    held.put_any(p - call.begin, v);
  }
}

// Half-to-even shift by n: (a + half + (bit n of a, where n > 0)) >> n.
struct Shift {
  i32v n, half, odd;

  void set(const int32_t* p) {
    n = load<i32v>(p);
    odd = (n > 0) & 1;
    half = (((i32v{} + 1) << n) >> 1) - odd;
    half &= -odd;
  }

  i32v operator()(i32v a) const { return (i32v)((u32v)a + (u32v)half + (u32v)((a >> n) & odd)) >> n; }
};

static inline i32v multiply(i32v a, i32v b) { return (i32v)((u32v)a * (u32v)b); }
static inline i32v add(i32v a, i32v b) { return (i32v)((u32v)a + (u32v)b); }
static inline i32v minus(i32v a, i32v b) { return (i32v)((u32v)a - (u32v)b); }

// Which products are needed. Plain: charge_n == 0 and settle_m == 1 for all channels.
enum class Form { Plain, General };

// Parameters of 16 channels.
struct IntegerUnit {
  static constexpr int K = kUnitVectors;
  i32v theta[K], rho[K], charge_m[K], settle_m[K], lo[K], hi[K];
  Shift charge[K], settle[K];

  IntegerUnit(const Neuron& n, int channel) {
    for (int k = 0; k < K; ++k) {
      const int c = channel + k * kLanes;
      theta[k] = load<i32v>(n.theta + c);
      rho[k] = n.reset == Reset::Soft ? load<i32v>(n.rho + c) : i32v{};
      charge_m[k] = load<i32v>(n.charge_m + c), settle_m[k] = load<i32v>(n.settle_m + c);
      charge[k].set(n.charge_n + c), settle[k].set(n.settle_n + c);
      lo[k] = load<i32v>(n.lo + c), hi[k] = load<i32v>(n.hi + c);
    }
  }
};

// P positions from p on, side by side to hide the latency of a step.
template <int P, class X, bool Hard, Form form, bool dither>
static inline void integer_positions(const NeuronCall& call, const Currents<X>& x, const IntegerUnit& u, int unit,
                                     int p, const BitsOut& spikes) {
  const Neuron& n = call.n;
  constexpr int K = kUnitVectors;
  const Held held = call.v.behind(0, unit);
  i32v v[P][K] = {}, bias[P][K];
  u32v phases[P][K] = {};
  for (int i = 0; i < P; ++i) {
    held.get_any(p + i - call.begin, v[i]);
    for (int k = 0; k < K; ++k) {
      bias[i][k] = load<i32v>(x.bias_at(p + i) + unit + k * kLanes);
      for (int j = 0; dither && j < kLanes; ++j) {
        const int c = call.channel + unit + k * kLanes + j;
        if (c < n.channels) phases[i][k][j] = element_phase(element_of(n, p + i, c));
      }
    }
  }
  for (int t = 0; t < call.steps; ++t)
    for (int i = 0; i < P; ++i) {
      const X* row = x.at(p + i - call.begin, t) + unit;
      uint32_t bits = 0;
      i32v a[K];
      for (int k = 0; k < K; ++k) {
        a[k] = add((i32v)((u32v)load_lanes(row + k * kLanes) << x.shift), bias[i][k]);
        if (n.gain != 1) a[k] = multiply(a[k], same(n.gain));
        const i32v product = multiply(v[i][k], u.charge_m[k]);
        a[k] = add(a[k], form == Form::Plain ? product : u.charge[k](product));
        const Mask fires = at_least(a[k], u.theta[k]);
        bits |= lane_bits(fires) << (k * kLanes);
        i32v rest = Hard ? where(negated(fires), a[k]) : minus(a[k], where(fires, u.rho[k]));
        if (form == Form::General) rest = multiply(rest, u.settle_m[k]);
        if (dither) {
          const u32v phase = (phases[i][k] + step_phase(call.first_step + t)) & kPhaseMask;
          const u32v d = phase >> (u32v)(kPhaseBits - u.settle[k].n);
          rest = add(rest, (i32v)d) >> u.settle[k].n;
        } else {
          rest = u.settle[k](rest);
        }
        v[i][k] = smaller(larger(rest, u.lo[k]), u.hi[k]);
      }
      if (call.out.spikes) spikes.put(bits, ((int64_t)(p + i - call.begin) * call.steps + t) * spikes.row);
      if (call.out.potential) put_potential(call, p + i, t, unit, reinterpret_cast<const int32_t*>(a));
    }
  for (int i = 0; i < P; ++i) held.put_any(p + i - call.begin, v[i]);
}

template <class X, bool Hard, Form form, bool dither>
static void neuron_unit(const NeuronCall& call, const Currents<X>& x, int unit) {
  constexpr int P = kBytes == 64 ? 4 : 2;
  const IntegerUnit u(call.n, call.channel + unit);
  const BitsOut spikes(call, unit);
  int p = call.begin;
  for (; p + P <= call.end; p += P) integer_positions<P, X, Hard, form, dither>(call, x, u, unit, p, spikes);
  for (; p < call.end; ++p) integer_positions<1, X, Hard, form, dither>(call, x, u, unit, p, spikes);
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
