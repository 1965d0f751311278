// A window read from the input's side, for Layer::runs (layout: hot/runs.h); made once for each when a model is loaded.
#pragma once
#include <cstdint>
#include <vector>

#include "window.h"

namespace ptq {
namespace hot {

constexpr int64_t kMostTaps = INT32_MAX / 8;  // of all positions together: places in the runs are int32

// Of a window of rank 1 or more.
std::vector<int32_t> make_runs(const Window& window);

}  // namespace hot
}  // namespace ptq
