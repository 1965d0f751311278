// How many events are under the taps of every output: what the offset of the weights adds up to.
#pragma once

#include "runs.h"
#include "vector.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

// Input positions from `first` on, output positions [begin, end).
struct Span {
  int first, begin, end;

  bool has(int to) const { return to >= begin && to < end; }
  bool has_all(const Run& run, int to) const { return has(to) && has(to + (run.count - 1) * run.out_step); }
};

// One reader of a run; `to` is its output for the first position.
static inline void count_reader(const Run& run, const Span& span, int steps, int to, const int32_t* in, int32_t* out) {
  const int from = run.step * steps, on = run.out_step * steps;
  in += (int64_t)(run.first - span.first) * steps, out += (int64_t)(to - span.begin) * steps;
  if (!span.has_all(run, to)) {
    for (int i = 0; i < run.count; ++i, to += run.out_step, in += from, out += on)
      for (int t = 0; span.has(to) && t < steps; ++t) out[t] += in[t];
  } else if (run.step == 1 && run.out_step == 1) {
    for (int j = 0; j < run.count * steps; ++j) out[j] += in[j];
  } else if (steps == 4) {
    typedef int32_t Four __attribute__((vector_size(16)));
    for (int i = 0; i < run.count; ++i, in += from, out += on) store(out, load<Four>(out) + load<Four>(in));
  } else {
    for (int i = 0; i < run.count; ++i, in += from, out += on)
      for (int t = 0; t < steps; ++t) out[t] += in[t];
  }
}

// Events under the taps of every output row, from those of every input row; both are [position][step].
static void count_taps(const Runs& runs, const Span& span, int steps, const int32_t* in, int32_t* out) {
  std::memset(out, 0, sizeof(int32_t) * (size_t)(span.end - span.begin) * (size_t)steps);
  for (int c = 0; c < runs.classes; ++c)
    for (const int32_t* at = runs.begin(c); at < runs.end(c);) {
      const Run run(at);
      for (int i = 0; i < run.readers; ++i) count_reader(run, span, steps, run.pairs[2 * i + 1], in, out);
      at = run.end();
    }
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
