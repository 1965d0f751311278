// How many events are under the taps of every output: what the offset of the weights adds up to.
#pragma once

#include "runs.h"
#include "vector.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

// Input positions [first, last), output positions [begin, end).
struct Span {
  int first, last, begin, end;

  bool meets(const Run& run) const { return run.first < last && run.last() >= first; }

  // Positions [from, until) of a run whose output, `to` for the first one, is in the range.
  void inside(const Run& run, int to, int* from, int* until) const {
    *from = min_int(run.count, to >= begin ? 0 : (begin - to - 1) / run.out_step + 1);
    *until = min_int(run.count, to >= end ? 0 : (end - to - 1) / run.out_step + 1);
  }
};

// One reader of a run; `to` is its output for the first position.
static inline void count_reader(const Run& run, const Span& span, int steps, int to, const int32_t* in, int32_t* out) {
  const int from = run.step * steps, on = run.out_step * steps;
  int i, until;
  span.inside(run, to, &i, &until);
  in += (int64_t)(run.first - span.first + i * run.step) * steps;
  out += (int64_t)(to - span.begin + i * run.out_step) * steps;
  if (run.step == 1 && run.out_step == 1) {
    for (int j = 0; j < (until - i) * steps; ++j) out[j] += in[j];
  } else if (steps == 4) {
    typedef int32_t Four __attribute__((vector_size(16)));
    for (; i < until; ++i, in += from, out += on) store(out, load<Four>(out) + load<Four>(in));
  } else {
    for (; i < until; ++i, in += from, out += on)
      for (int t = 0; t < steps; ++t) out[t] += in[t];
  }
}

// Events under the taps of every output row, from those of every input row; both are [position][step].
static void count_taps(const Runs& runs, const Span& span, int steps, const int32_t* in, int32_t* out) {
  std::memset(out, 0, sizeof(int32_t) * (size_t)(span.end - span.begin) * (size_t)steps);
  for (int c = 0; c < runs.classes; ++c)
    for (const int32_t* at = runs.begin(c); at < runs.end(c);) {
      Run run(at);
      at = run.end();
      for (int n = 0; n < run.repeats; ++n, run.go_on())
        for (int i = 0; span.meets(run) && i < run.readers; ++i) count_reader(run, span, steps, run.to(i), in, out);
    }
}

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
