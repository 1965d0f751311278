// Runs of a tap table, for Layer::runs (layout: hot/runs.h); made once for each table when a model is loaded.
#pragma once
#include <cstdint>
#include <vector>

namespace ptq {
namespace hot {

constexpr int64_t kMostTaps = INT32_MAX / 8;  // of all positions together: places in the runs are int32

std::vector<int32_t> make_runs(const int32_t* tap_table, int positions, int taps, int in_positions);

}  // namespace hot
}  // namespace ptq
