// A native plan of a stranger, by libFuzzer: refused, or run without a fault of memory or of arithmetic.
//
// The first byte says how it is run (batch, steps, path, whether states are given), the rest is the plan. Whole
// fields are changed as well as bytes: most plans with a changed byte are refused by the header alone.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "engine.h"
#include "layout.h"
#include "levels.h"

using namespace ptq;

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

constexpr int64_t kMostBytes = (int64_t)1 << 24;  // larger plans are checked and not run
constexpr int64_t kMostWork = (int64_t)1 << 26;

Asking nobody{Caller{}};  // no call is cancelled

int64_t bytes_of(const Plan& plan) {
  int64_t bytes = plan.time_bytes + plan.still_bytes + plan.local_time_bytes * 256 + plan.local_still_bytes * 256;
  for (int64_t s : plan.state_bytes) bytes += s;
  for (const Value& v : plan.values) bytes += 8 * (int64_t)v.positions * v.channels;
  return bytes + 4 * plan.numbers;
}

// Additions of a sample at one step, so that no case takes long because it is large.
int64_t work_of_all(const Plan& plan) {
  int64_t work = 0;
  for (const Op& op : plan.ops) {
    const int64_t out =
        op.output < 0 ? 1 : (int64_t)plan.values[(size_t)op.output].positions * plan.values[(size_t)op.output].channels;
    const int64_t each = (int64_t)std::max(1, op.project.taps) * std::max(1, op.project.cin) + std::max(1, op.width);
    if (out > kMostWork || each > kMostWork) return kMostWork;
    work += out * each;
    if (op.kind == kMatmul) work += out * plan.values[(size_t)op.sources[0]].channels;
  }
  return work;
}

void run(Engine& engine, uint8_t how) {
  const Plan& plan = engine.plan();
  Request r{};
  r.batch = 1 + (how & 1), r.steps = 1 + (how >> 1 & 1), r.x_steps = how & 16 ? 1 : r.steps;
  r.threads = 1, r.path = (how >> 2 & 3) % 3, r.numbers = plan.numbers;
  std::vector<float> x((size_t)(r.batch * r.x_steps * plan.numbers));
  for (size_t i = 0; i < x.size(); ++i) x[i] = (float)(i % 7) - 2.0f;
  std::vector<std::vector<uint8_t>> states;
  std::vector<uint8_t*> state_pointers;
  std::vector<int64_t> state_bytes;
  for (int64_t bytes : plan.state_bytes) {
    states.emplace_back((size_t)(bytes * r.batch));
    state_bytes.push_back(bytes * r.batch);
  }
  for (auto& s : states) state_pointers.push_back(s.data());
  std::vector<std::vector<int64_t>> kept;
  std::vector<int64_t*> kept_pointers;
  std::vector<int64_t> kept_numbers;
  for (int32_t v : plan.kept) {
    const Value* value = v < 0 ? nullptr : &plan.values[(size_t)v];
    const int64_t each = value == nullptr ? 0 : (int64_t)value->positions * value->channels;
    kept.emplace_back((size_t)(each * r.batch * (value != nullptr && value->time ? r.steps : 1)));
  }
  for (auto& k : kept) {
    kept_pointers.push_back(k.empty() ? nullptr : k.data());
    kept_numbers.push_back((int64_t)k.size());
  }
  r.x = x.data();
  r.states = r.states_to = how & 32 ? state_pointers.data() : nullptr, r.state_bytes = state_bytes.data();
  r.kept = kept_pointers.data(), r.kept_numbers = kept_numbers.data();
  engine.run(r, nobody);
  if (how & 32) engine.run(r, nobody);  // and go on
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return -1;
  std::vector<uint8_t> block(data + 1, data + size);  // aligned
  try {
    std::unique_ptr<Plan> plan = read_plan(block.data(), (int64_t)block.size());
    if (bytes_of(*plan) > kMostBytes || work_of_all(*plan) > kMostWork) return 0;
    Engine engine(std::move(plan), level_operations(data[0] & 64 ? "scalar" : ""), (data[0] & 128) != 0);
    run(engine, data[0]);
  } catch (const Refused&) {
  }
  return 0;
}

// One number of the tables becomes another, or bytes change and the size in the header follows.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  const size_t least = 1 + 8 * (size_t)hFields;
  std::srand(seed);
  if (size < least || std::rand() % 4 == 0) return LLVMFuzzerMutate(data, size, max_size);
  for (int i = std::rand() % 3; i >= 0; --i) {
    const int64_t known[] = {-1, 0, 1, 2, 3, 4, 7, 8, 16, 63, 64, 65, 255, 256, 65536, INT32_MAX, INT64_MIN, INT64_MAX};
    const size_t words = (size - 1) / 8;
    size_t at = (size_t)std::rand() % words;
    if (std::rand() % 3) at %= std::min(words, (size_t)2048);  // the tables stand in front
    int64_t word, other;
    std::memcpy(&word, data + 1 + 8 * at, 8);
    std::memcpy(&other, data + 1 + 8 * ((size_t)std::rand() % words), 8);
    const int how = std::rand() % 4;
    word = how == 0 ? known[std::rand() % 18] : how == 1 ? other : word + std::rand() % 9 - 4;
    std::memcpy(data + 1 + 8 * at, &word, 8);
  }
  const int64_t magic = kMagic, whole = (int64_t)size - 1;
  std::memcpy(data + 1 + 8 * hMagic, &magic, 8);
  std::memcpy(data + 1 + 8 * hSize, &whole, 8);
  return size;
}
