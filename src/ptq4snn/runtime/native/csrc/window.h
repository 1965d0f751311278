// A window that moves over positions: kernel, stride, padding and dilation of a convolution or a pool. Taps are
// computed from it where they are needed, not stored.
#pragma once
#include <cstdint>

namespace ptq {
namespace hot {

constexpr int kMostAxes = 8;

// Output o reads inputs o * stride - before + k * dilation, k < kernel, as far as they are inside of 0 .. size - 1; or
// those of a list, which counts for pools alone.
struct Axis {
  int32_t size, kernel, stride, before, dilation, out;
  const int32_t *taps, *weights;  // [out][kernel], all inside; null: none
};

constexpr int kAxisNumbers = 6;  // of an axis in a plan, in the order above

// Positions are row-major over the sizes, outputs over the outs, taps over the kernels of all axes. Rank 0: there is no
// window, and every position reads itself.
struct Window {
  int32_t rank;
  Axis axes[kMostAxes];
};

// What every output of a pool reads: a window, or a list [outputs][count] with -1 for nothing. Exactly one is given.
struct Taps {
  int count;
  const Window* window;
  const int32_t* table;
};

// A sum of stride * coordinate, row-major over the sizes.
struct Strides {
  int32_t rank, sizes[kMostAxes], strides[kMostAxes];
};

}  // namespace hot
}  // namespace ptq
