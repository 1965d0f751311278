// Runs of a tap table, for Layer::runs (layout: hot/runs.h); made once for each table when a model is loaded.
#pragma once
#include <stddef.h>
#include <cstdint>
#include <vector>

namespace ptq {
namespace hot {

std::vector<int32_t> make_runs(const int32_t* tap_table, int positions, int taps, int in_positions);

}  // namespace hot
}  // namespace ptq
