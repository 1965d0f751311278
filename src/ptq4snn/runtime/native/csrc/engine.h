// Runs a plan: images in tiles, operations in regions, rows of images and positions split between threads.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include <sys/types.h>

#include "plan.h"
#include "threads.h"

namespace ptq {

// Asks whoever called whether a call is still wanted. Python handles signals in its own thread and only where it may:
// `enter` and `leave` stand around whatever needs its lock, `cancelled` says that a signal raised an exception. Another
// thread of the caller ends the calls that run by changing `cancels`.
struct Caller {
  void* (*leave)();        // give the lock away; null: there is nobody to ask
  void (*enter)(void*);    // and take it again
  int (*cancelled)();      // with the lock
  const int64_t* cancels;  // null: no other thread
};

// A call that its caller does not want any more. What it was to write is half written.
struct Cancelled : std::exception {
  const char* what() const noexcept override { return "the call was cancelled"; }
};

// Without the caller's lock as long as it lives; `cancelled` takes it for a moment.
class Asking {
 public:
  explicit Asking(const Caller& caller) : caller_(caller), before_(cancels()) {
    if (caller_.leave != nullptr) thread_ = caller_.leave();
  }
  ~Asking() {
    if (caller_.leave != nullptr) caller_.enter(thread_);
  }
  Asking(const Asking&) = delete;

  // Whether the call is to end; the caller is asked every kAskEvery, for its lock may be busy.
  bool cancelled() {
    if (cancels() != before_) said_ = true;
    if (caller_.leave == nullptr || said_) return said_;
    const auto now = std::chrono::steady_clock::now();
    if (now - asked_ < kAskEvery) return false;
    asked_ = now;
    caller_.enter(thread_);
    said_ = caller_.cancelled() != 0;
    thread_ = caller_.leave();
    return said_;
  }

  static constexpr std::chrono::milliseconds kAskEvery{30};

 private:
  int64_t cancels() const {
    return caller_.cancels == nullptr ? 0 : __atomic_load_n(caller_.cancels, __ATOMIC_RELAXED);
  }

  Caller caller_;
  int64_t before_;  // cancels when the call began
  void* thread_ = nullptr;
  bool said_ = false;
  std::chrono::steady_clock::time_point asked_ = std::chrono::steady_clock::now();
};

// Words of the channels of operations [begin, end) that threads may share, or 0 (sharing.cpp).
int words_of_region(const Plan& plan, int begin, int end);

class Engine {
 public:
  // `expanded`: weights of the event path stay expanded beside the packed ones.
  Engine(std::unique_ptr<Plan> plan, const Operations& operations, bool expanded);

  // Throws Cancelled where the caller says so; the states are then neither those before nor those after.
  void run(const Request& request, Asking& asking);

  int64_t weights_bytes() const { return plan_->resident_bytes() + expanded_.bytes(); }
  int64_t arena_bytes() const;
  int64_t state_bytes() const;
  const std::vector<Counters>& counters() const { return counters_; }
  const Plan& plan() const { return *plan_; }

 private:
  struct Region {
    int begin, end;                   // operations
    int work;                         // positions
    int64_t time_bytes, still_bytes;  // local values of a position: of a step, and without time
    int loop;                         // regions of one loop run for every step; -1: once
    int block, images;                // positions and, where a block is all of them, images at once
    int64_t image_bytes = 0;          // local values of a block
    int words = 0;                    // of the channels, where threads may share those instead of positions; else 0
  };
  struct Image {
    uint8_t* memory;
    int64_t number;  // in the batch
    int place;       // among the images at once
    int64_t step;    // of a loop
  };

  void expand_weights();
  void check(const Request& request) const;
  void make_room(const Request& request);
  void set_blocks();
  int64_t sum_block(const Op& op) const;
  View view(const Region& region, int32_t value, const Image& image, uint8_t* local, int first) const;
  Call call(const Region& region, const Op& op, const Image& image, uint8_t* local, int first, View* views) const;
  int64_t scratch_bytes();
  void work(int thread, Barrier& barrier);
  void work_on(const Region& region, int thread, int64_t phase, int64_t first, int64_t images, int64_t step);
  void work_on_rows(const Region& region, int thread, int64_t phase, const Image& first, int64_t begin, int64_t end);
  bool splits_words(const Region& region) const;
  int share(const Region& region, const Image& image, int64_t thread) const;
  void run_rows(const Region& region, int thread, int64_t phase, const Image& image, int begin, int end, int word = 0,
                int words = 0);
  void run_block(const Region& region, int thread, const Image& image, int begin, int end, int word, int words);
  void run_images(const Region& region, int thread, const Image& first, int count);
  static bool takes_images(const Op& op);
  void run_op(int number, int thread, const Call& call, int begin, int end);
  void lock(Asking& asking);
  void after_fork();
  bool stopped(int thread, int64_t phase);

  std::unique_ptr<Plan> plan_;
  Operations operations_;
  std::vector<Region> regions_;
  Request request_{};
  int64_t image_bytes_ = 0, local_bytes_ = 0, scratch_bytes_ = 0;
  int tile_ = 1;
  bool ready_ = false;  // for calls like the last one
  Block expanded_;
  Block arena_;
  std::vector<Block> own_;                     // of a thread: local values, then scratch
  std::vector<std::vector<View>> views_;       // of a thread: inputs of an operation
  std::vector<std::vector<Counters>> counts_;  // of a thread, by operation
  std::vector<Counters> counters_;
  std::unique_ptr<std::timed_mutex> mutex_ = std::make_unique<std::timed_mutex>();
  std::atomic<pid_t> process_;            // whose mutex it is; less than 0 while that process makes it
  std::atomic<std::thread::id> owner_{};  // the thread that runs a call
  Asking* asking_ = nullptr;              // of the call that runs
  std::atomic<int64_t> stop_{INT64_MAX};  // the phase in which all threads end, for it is not wanted any more
  Team team_;
};

}  // namespace ptq
