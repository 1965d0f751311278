#include "threads.h"

#include <chrono>

#include <pthread.h>
#include <unistd.h>

namespace ptq {

namespace {

constexpr std::chrono::microseconds kLooking{50};
constexpr int kLooks = 16;  // between two at the clock

inline void rest_a_moment() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Whether something came to be while we looked; to sleep and to be woken takes longer than most of what is waited for.
template <class Is>
bool look(const Is& is) {
  const auto until = std::chrono::steady_clock::now() + kLooking;
  do {
    for (int i = 0; i < kLooks; ++i) {
      if (is()) return true;
      rest_a_moment();
    }
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

// Taken by whoever forks, and given back in both processes.
pthread_mutex_t exchanging = PTHREAD_MUTEX_INITIALIZER;

void take() { pthread_mutex_lock(&exchanging); }
void give() { pthread_mutex_unlock(&exchanging); }

const int kWatched = pthread_atfork(take, give, give);

}  // namespace

Unforked::Unforked() { take(); }
Unforked::~Unforked() { give(); }

void Barrier::wait() {
  if (count_ == 1) return;
  const uint64_t round = round_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == count_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      round_.store(round + 1, std::memory_order_release);
    }
    changed_.notify_all();
    return;
  }
  if (look([&] { return round_.load(std::memory_order_acquire) != round; })) return;
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return round_.load(std::memory_order_acquire) != round; });
}

struct Team::Crew {
  pid_t owner = getpid();
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::condition_variable begins, ends;
  Barrier barrier;
  std::atomic<uint64_t> job{0};  // changed with the mutex, looked at without
  std::atomic<int> busy{0};
  int members = 0;
  bool stop = false;
  Work work = nullptr;
  void* context = nullptr;

  void member(int thread) {
    uint64_t done = 0;
    for (;;) {
      look([&] { return job.load(std::memory_order_acquire) != done; });
      {
        std::unique_lock<std::mutex> lock(mutex);
        begins.wait(lock, [&] { return stop || (job != done && thread < members); });
        if (stop) return;
        done = job;
      }
      work(context, thread, barrier);
      std::lock_guard<std::mutex> lock(mutex);
      if (--busy == 0) ends.notify_one();
    }
  }

  void hire(int count) {
    while ((int)threads.size() < count - 1) {
      const int thread = (int)threads.size() + 1;
      threads.emplace_back([this, thread] { member(thread); });
    }
  }
};

Team::Team() = default;

Team::~Team() {
  if (!crew_) return;
  if (crew_->owner != getpid()) {
    (void)crew_.release();
    return;
  }
  {
    std::lock_guard<std::mutex> lock(crew_->mutex);
    crew_->stop = true;
  }
  crew_->begins.notify_all();
  for (std::thread& t : crew_->threads) t.join();
}

void Team::run(int count, Work work, void* context) {
  if (crew_ && crew_->owner != getpid()) (void)crew_.release();
  if (!crew_) crew_ = std::make_unique<Crew>();
  Crew& c = *crew_;
  {
    std::lock_guard<std::mutex> lock(c.mutex);
    c.hire(count);
    c.barrier.reset(count);
    c.members = count;
    c.busy = count - 1;
    c.work = work;
    c.context = context;
    ++c.job;
  }
  if (count > 1) c.begins.notify_all();
  work(context, 0, c.barrier);
  if (look([&] { return c.busy.load(std::memory_order_acquire) == 0; })) return;
  std::unique_lock<std::mutex> lock(c.mutex);
  c.ends.wait(lock, [&] { return c.busy == 0; });
}

}  // namespace ptq
