// A program that runs a plan without Python: on another machine, under an emulator, under sanitizers.
//
//     runner PLAN INPUT OUTPUT [LEVEL]          writes the kept values, then the states
//     runner --fuzz PLAN INPUT SEED COUNT       runs COUNT broken copies of the plan: each is refused or runs
//
// INPUT is int64 batch, steps, x_steps, first_step, threads, path, with_states, then x, then the states.
// A refused plan gives exit status 3 and a sentence.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "engine.h"
#include "levels.h"

using namespace ptq;

namespace {

using Bytes = std::vector<uint8_t>;

Asking nobody{Caller{}};  // no call is cancelled

constexpr int64_t kFuzzBytes = (int64_t)1 << 26;  // larger plans are not run when fuzzing

Bytes read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Refused(std::string("cannot read ") + path);
  return Bytes(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

// The memory of one call, as large as the plan says.
struct Case {
  Request request{};
  std::vector<float> x;
  std::vector<Bytes> states;
  std::vector<std::vector<int64_t>> kept;
  std::vector<uint8_t*> state_pointers;
  std::vector<int64_t*> kept_pointers;
  std::vector<int64_t> state_bytes, kept_numbers;

  Case(const Plan& plan, const Bytes& input) {
    int64_t head[7];
    if (input.size() < sizeof(head)) throw Refused("the input has no header");
    std::memcpy(head, input.data(), sizeof(head));
    request.batch = head[0], request.steps = head[1], request.x_steps = head[2], request.first_step = head[3];
    request.threads = head[4], request.path = head[5];
    request.numbers = plan.numbers;
    size_t at = sizeof(head);
    const int64_t numbers = times(times(request.batch, request.x_steps), plan.numbers);
    x.resize((size_t)numbers);
    take(input, at, x.data(), numbers * 4);
    make_states(plan, input, at, head[6] != 0);
    make_kept(plan);
    request.x = x.data();
  }

  // What the input holds; the rest stays zero.
  static void take(const Bytes& input, size_t& at, void* out, int64_t bytes) {
    const size_t there = std::min((size_t)bytes, input.size() - std::min(at, input.size()));
    if (there > 0) std::memcpy(out, input.data() + at, there);
    at += there;
  }

  void make_states(const Plan& plan, const Bytes& input, size_t& at, bool wanted) {
    for (int64_t bytes : plan.state_bytes) {
      states.emplace_back((size_t)times(bytes, request.batch));
      take(input, at, states.back().data(), (int64_t)states.back().size());
    }
    for (Bytes& s : states) {
      state_pointers.push_back(s.data());
      state_bytes.push_back((int64_t)s.size());
    }
    request.states = request.states_to = wanted ? state_pointers.data() : nullptr;
    request.state_bytes = state_bytes.data();
  }

  void make_kept(const Plan& plan) {
    for (int32_t v : plan.kept) {
      const int64_t steps = v < 0 ? 0 : plan.values[(size_t)v].time ? request.steps : 1;
      const int64_t each = v < 0 ? 0 : times(plan.values[(size_t)v].positions, plan.values[(size_t)v].channels);
      kept.emplace_back((size_t)times(times(each, request.batch), steps));
    }
    for (auto& k : kept) {
      kept_pointers.push_back(k.empty() ? nullptr : k.data());
      kept_numbers.push_back((int64_t)k.size());
    }
    request.kept = kept_pointers.data();
    request.kept_numbers = kept_numbers.data();
  }
};

int run(const char* plan_path, const char* input_path, const char* output_path, const char* level) {
  const Bytes block = read_file(plan_path), input = read_file(input_path);
  Engine engine(read_plan(block.data(), (int64_t)block.size()), level_operations(level), false);
  Case one(engine.plan(), input);
  engine.run(one.request, nobody);
  std::ofstream out(output_path, std::ios::binary);
  for (const auto& k : one.kept) out.write(reinterpret_cast<const char*>(k.data()), (std::streamsize)(k.size() * 8));
  for (const auto& s : one.states) out.write(reinterpret_cast<const char*>(s.data()), (std::streamsize)s.size());
  return out ? 0 : 1;
}

struct Random {
  uint64_t state;
  uint64_t next() {  // xorshift
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  }
};

// A few fields of the tables or bytes anywhere become something else.
void damage(Bytes& block, Random& random) {
  int64_t head[hFields];
  std::memcpy(head, block.data(), sizeof(head));
  const int64_t rows = vFields * head[hValues] + aFields * head[hArrays] + oFields * head[hOps];
  const uint64_t tables = (random.next() % 4 ? (uint64_t)(8 * (hFields + rows)) : block.size());
  const uint64_t changes = 1 + random.next() % 3;
  for (uint64_t i = 0; i < changes; ++i) {
    if (random.next() % 4 == 0) {
      block[random.next() % block.size()] = (uint8_t)random.next();
      continue;
    }
    const int64_t known[] = {-1, 0, 1, 2, 3, 7, 8, 63, 64, 65, 255, 256, 65536, INT32_MAX, INT64_MIN, INT64_MAX};
    int64_t word;
    uint8_t* at = block.data() + 8 * (random.next() % (tables / 8));
    std::memcpy(&word, at, 8);
    word = random.next() % 2 ? known[random.next() % 16] : word + (int64_t)(random.next() % 9) - 4;
    std::memcpy(at, &word, 8);
  }
}

bool is_small(const Plan& plan) {
  int64_t bytes = plan.time_bytes + plan.still_bytes + plan.local_time_bytes * 256 + plan.local_still_bytes * 256;
  for (int64_t s : plan.state_bytes) bytes += s;
  for (const Value& v : plan.values) bytes += 8 * (int64_t)v.positions * v.channels;
  return bytes < kFuzzBytes && plan.numbers < kFuzzBytes;
}

int fuzz(const char* plan_path, const char* input_path, uint64_t seed, int count) {
  const Bytes block = read_file(plan_path), input = read_file(input_path);
  read_plan(block.data(), (int64_t)block.size());  // it must be whole before it is broken
  Random random{seed * 0x9e3779b97f4a7c15ull + 1};
  int ran = 0, refused = 0;
  for (int i = 0; i < count; ++i) {
    Bytes broken = block;
    damage(broken, random);
    try {
      std::unique_ptr<Plan> plan = read_plan(broken.data(), (int64_t)broken.size());
      if (!is_small(*plan)) continue;
      Engine engine(std::move(plan), level_operations(""), true);
      Case one(engine.plan(), input);
      engine.run(one.request, nobody);
      ++ran;
    } catch (const Refused&) {
      ++refused;
    }
  }
  std::printf("%d ran, %d refused\n", ran, refused);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 6 && std::strcmp(argv[1], "--fuzz") == 0)
      return fuzz(argv[2], argv[3], std::strtoull(argv[4], nullptr, 10), std::atoi(argv[5]));
    if (argc == 4 || argc == 5) return run(argv[1], argv[2], argv[3], argc == 5 ? argv[4] : "");
    std::fprintf(stderr, "runner PLAN INPUT OUTPUT [LEVEL] | runner --fuzz PLAN INPUT SEED COUNT\n");
    return 2;
  } catch (const std::exception& why) {
    std::fprintf(stderr, "%s\n", why.what());
    return 3;
  }
}
