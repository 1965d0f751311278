// A plan as it comes from outside, all of it checked before anything runs.
// Its layout is that of layout.h.
#pragma once
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "types.h"

namespace ptq {

constexpr int32_t kMostPositions = 1 << 30;  // of a value: a block behind them is still a number

// Why a plan or a call is refused.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// a * b and a + b of sizes, refused beyond 2^46.
int64_t times(int64_t a, int64_t b);
int64_t plus(int64_t a, int64_t b);

// Memory aligned to 64 bytes, with 64 bytes behind it.
class Block {
 public:
  explicit Block(int64_t bytes = 0) { resize(bytes); }
  void resize(int64_t bytes);  // the content is lost
  uint8_t* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(uint8_t* p) const;
  };
  std::unique_ptr<uint8_t[], Free> data_;
  int64_t bytes_ = 0;
};

struct Plan {
  std::vector<Value> values;
  std::vector<Op> ops;
  std::vector<int64_t> state_bytes;                     // of one sample, by state
  std::vector<int32_t> kept;                            // value of each slot
  int64_t numbers = 0;                                  // of one sample of the input at one step
  int64_t time_bytes = 0, still_bytes = 0;              // of an image
  int64_t local_time_bytes = 0, local_still_bytes = 0;  // of a position of a block
  Block parameters, weights;
  std::vector<std::vector<int32_t>> runs;  // of windows

  int64_t resident_bytes() const;  // of everything that stays
};

// Positions over which an operation is split; 1 where it works on an image as a whole.
int32_t work_of(const Plan& plan, const Op& op);

// The plan, or Refused.
std::unique_ptr<Plan> read_plan(const uint8_t* bytes, int64_t size);

// Refused unless the operation fits its values and arrays (check.cpp).
void check_op(const Plan& plan, const Op& op);

// Refused unless operations of one region can run side by side; `made` is the operation that makes a value.
void check_regions(const Plan& plan, const std::vector<int64_t>& made);

}  // namespace ptq
