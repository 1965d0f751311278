// The tap table read from the input's side. Taps are put in an order in which taps that meet at some input position
// (all of them with stride 1; those of equal parity with stride 2) are neighbours and form a class:
//     int32 classes, single, class_start[taps + 1], order[taps], start[in_positions + 1], pairs (rank, output position)
// Pairs start[p] .. start[p + 1] - 1 are the readers of input position p by rank, the place of their tap in `order`.
// `single`: no tap reads an input position twice.
#pragma once

#include <cstdint>

namespace ptq {
namespace hot {

struct Inverse {
  const int32_t *class_start, *order, *start, *pairs;
  int classes;
  bool single;

  Inverse(const int32_t* numbers, int taps, int in_positions) : classes(numbers[0]), single(numbers[1] != 0) {
    class_start = numbers + 2;
    order = class_start + taps + 1;
    start = order + taps;
    pairs = start + in_positions + 1;
  }
};

}  // namespace hot
}  // namespace ptq
