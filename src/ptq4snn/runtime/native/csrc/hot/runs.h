// A window read from the input's side, as runs of input positions that are read alike.
//
// Taps are put in an order in which taps that meet at some input position (all of them with stride 1; those of equal
// parity with stride 2) are neighbours and form a class; a tap's place in that order is its rank. Positions first,
// first + step, ... of a run have the same readers: taps by rank, whose outputs move on by out_step with every
// position. The whole run comes `repeats` times, every time `again` positions and `out_again` outputs further on: the
// rows of an image that are read alike.
//     int32 classes, class_start[taps + 1], order[taps], run_start[taps + 1], then the runs of all classes:
//     first, step, count, out_step, repeats, again, out_again, readers, and (rank, output of the first position) for
//     each reader; steps are above 0
#pragma once

#include "vector.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

constexpr int kRunFields = 8;  // of a run, before its readers

struct Run {
  int first, step, count, out_step;
  int repeats, again, out_again;
  int readers;
  int moved;             // outputs that this repeat is further on
  const int32_t* pairs;  // rank, output position of the first repeat

  explicit Run(const int32_t* numbers)
      : first(numbers[0]),
        step(numbers[1]),
        count(numbers[2]),
        out_step(numbers[3]),
        repeats(numbers[4]),
        again(numbers[5]),
        out_again(numbers[6]),
        readers(numbers[7]),
        moved(0),
        pairs(numbers + kRunFields) {}

  const int32_t* end() const { return pairs + 2 * (int64_t)readers; }
  int rank(int reader) const { return pairs[2 * reader]; }
  int to(int reader) const { return pairs[2 * reader + 1] + moved; }
  int last() const { return first + (count - 1) * step; }
  void go_on() { first += again, moved += out_again; }  // to the next repeat
};

struct Runs {
  int classes;
  const int32_t *class_start, *order, *run_start, *numbers;

  Runs(const int32_t* all, int taps) : classes(all[0]) {
    class_start = all + 1;
    order = class_start + taps + 1;
    run_start = order + taps;
    numbers = run_start + taps + 1;
  }

  const int32_t* begin(int c) const { return numbers + run_start[c]; }
  const int32_t* end(int c) const { return numbers + run_start[c + 1]; }
};

// The runs of a layer without a window: one tap, one class and one run, in which output p reads position p.
struct OwnRuns {
  int32_t numbers[1 + 2 + 1 + 2 + kRunFields + 2];

  // clang-format off
  OwnRuns(int begin, int end)
      : numbers{
            1,                            // classes
            0, 1,                         // class_start
            0,                            // order
            0, kRunFields + 2,            // run_start
            begin, 1, end - begin, 1,     // the run: first, step, count, out_step
            1, 0, 0, 1,                   // repeats, again, out_again, readers
            0, begin,                     // its reader: rank, output of the first position
        } {}
  // clang-format on
};

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
