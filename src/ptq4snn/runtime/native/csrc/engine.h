// Runs a plan: images in tiles, operations in regions, rows of images and positions split between threads.
#pragma once
#include <mutex>

#include "plan.h"
#include "threads.h"

namespace ptq {

// One call from outside; the layout is part of the interface (binding.py).
struct Request {
  const float* x;               // [x_steps][batch][numbers]
  int64_t x_steps, batch, numbers;
  int64_t steps, first_step;
  uint8_t* const* states;       // by state: [batch][bytes of a sample], or null: from rest
  const int64_t* state_bytes;   // bytes behind each of them
  int64_t* const* kept;         // by slot: [steps][batch][positions][channels], without time [batch]..., or null
  const int64_t* kept_numbers;  // numbers behind each of them
  int64_t threads, path, profile;
};

class Engine {
 public:
  Engine(std::unique_ptr<Plan> plan, const Operations& operations);

  void run(const Request& request);

  int64_t weights_bytes() const { return plan_->resident_bytes(); }
  int64_t arena_bytes() const;
  int64_t state_bytes() const;
  const std::vector<Counters>& counters() const { return counters_; }
  const Plan& plan() const { return *plan_; }

 private:
  struct Region {
    int begin, end;  // operations
    int work;        // positions
    int64_t time_bytes, still_bytes;  // local values of a position: of a step, and without time
    int block, images;        // positions and, where a block is all of them, images at once
    int64_t image_bytes = 0;  // local values of a block
  };
  struct Image {
    uint8_t* memory;
    int64_t number;  // in the batch
    int place;       // among the images at once
  };

  void check(const Request& request) const;
  void make_room(const Request& request);
  void set_blocks();
  View view(const Region& region, int32_t value, const Image& image, uint8_t* local, int first) const;
  Call call(const Region& region, const Op& op, const Image& image, uint8_t* local, int first, View* views) const;
  int64_t scratch_bytes();
  void work(int thread, Barrier& barrier);
  void run_rows(const Region& region, int thread, const Image& image, int begin, int end);
  void run_block(const Region& region, int thread, const Image& image, int begin, int end);
  void run_images(const Region& region, int thread, const Image& first, int count);
  static bool takes_images(const Op& op);
  void run_op(int number, int thread, const Call& call, int begin, int end);

  std::unique_ptr<Plan> plan_;
  Operations operations_;
  std::vector<Region> regions_;
  Request request_{};
  int64_t image_bytes_ = 0, local_bytes_ = 0, scratch_bytes_ = 0;
  int tile_ = 1;
  bool ready_ = false;  // for calls like the last one
  Block arena_;
  std::vector<Block> own_;                        // of a thread: local values, then scratch
  std::vector<std::vector<View>> views_;          // of a thread: inputs of an operation
  std::vector<std::vector<Counters>> counts_;     // of a thread, by operation
  std::vector<Counters> counters_;
  std::mutex mutex_;
  Team team_;
};

}  // namespace ptq
