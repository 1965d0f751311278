// A team of threads that lives as long as its engine, and a barrier between them.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace ptq {

// Waits by looking for a short while, then by sleeping: other work may need the core.
class Barrier {
 public:
  void reset(int count) { count_ = count; }
  void wait();

 private:
  int count_ = 1;
  std::atomic<int> arrived_{0};
  std::atomic<uint64_t> round_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
};

// While one lives no process is forked: memory that is just exchanged would be neither the old nor the new one in the
// child. For moments only, and never two in one thread.
class Unforked {
 public:
  Unforked();
  ~Unforked();
  Unforked(const Unforked&) = delete;
};

class Team {
 public:
  Team();
  ~Team();
  Team(const Team&) = delete;

  // work(context, i, barrier) on `count` threads, this one being 0; returns when all are done.
  using Work = void (*)(void* context, int thread, Barrier& barrier);
  void run(int count, Work work, void* context);

 private:
  struct Crew;  // the threads and what they wait on: after a fork it is left behind, its threads are not there
  std::unique_ptr<Crew> crew_;
};

}  // namespace ptq
