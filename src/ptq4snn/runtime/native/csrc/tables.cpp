#include "tables.h"

#include <cstdlib>
#include <cstring>

namespace ptq {

namespace {

constexpr int64_t kLargest = (int64_t)1 << 46;
constexpr int64_t kMost = (int64_t)1 << 20;  // rows of a table

int64_t bytes_of(int64_t type, int64_t count) { return times(count, type == tI8 ? 1 : type == tI32 ? 4 : 8); }

int64_t aligned(int64_t bytes) { return plus(bytes, kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

int64_t times(int64_t a, int64_t b) {
  int64_t out;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &out) || out > kLargest) throw Refused("a size is absurd");
  return out;
}

int64_t plus(int64_t a, int64_t b) {
  int64_t out;
  if (a < 0 || b < 0 || __builtin_add_overflow(a, b, &out) || out > kLargest) throw Refused("a size is absurd");
  return out;
}

int32_t small(int64_t x, int64_t low, int64_t high) {
  if (x < low || x > high) throw Refused("a number of an operation is out of its range");
  return (int32_t)x;
}

void Block::Free::operator()(uint8_t* p) const { std::free(p); }

void Block::resize(int64_t bytes) {
  data_.reset();
  bytes_ = 0;
  const int64_t whole = aligned(plus(bytes, 64));
  void* memory = std::aligned_alloc(kAlignment, (size_t)whole);
  if (memory == nullptr) throw Refused("there is not enough memory");
  data_.reset(static_cast<uint8_t*>(memory));
  bytes_ = bytes;
}

Tables::Tables(const uint8_t* bytes, int64_t size) : bytes_(bytes), size_(size) {
  if (size < hFields * 8) throw Refused("the plan has no header");
  head_ = row(0, 0, hFields);
  if (head(hMagic) != kMagic || head(hSize) != size) throw Refused("this is no plan of these kernels");
  for (int i = hSize; i < hFields; ++i)
    if (head(i) < 0 || head(i) > kLargest) throw Refused("the plan's header holds an absurd number");
  if (head(hStates) > kMost || head(hKept) > kMost) throw Refused("the plan has an absurd number of states");
  values_ = hFields * 8;
  const int64_t arrays = table_end(values_, head(hValues), vFields);
  ops_ = table_end(arrays, head(hArrays), aFields);
  table_end(ops_, head(hOps), oFields);
  find_arrays(arrays);
}

Row Tables::row(int64_t at, int64_t i, int fields) const {
  Row out((size_t)fields);
  std::memcpy(out.data(), bytes_ + at + i * fields * 8, (size_t)fields * 8);
  return out;
}

int64_t Tables::table_end(int64_t at, int64_t rows, int fields) const {
  if (rows > kMost) throw Refused("the plan has an absurd number of rows");
  const int64_t end = plus(at, times(rows, fields * 8));
  if (end > size_) throw Refused("the plan is shorter than its tables");
  return end;
}

void Tables::find_arrays(int64_t at) {
  for (int64_t i = 0; i < head(hArrays); ++i) {
    const Row f = row(at, i, aFields);
    if (f[aType] < tI8 || f[aType] >= tTypes || f[aCount] <= 0 || f[aOffset] < 0) throw Refused("an array is absurd");
    if (plus(f[aOffset], bytes_of(f[aType], f[aCount])) > size_) throw Refused("an array lies outside of the plan");
    arrays_.push_back({f[aType], f[aCount], bytes_ + f[aOffset]});
  }
}

void Tables::copy_arrays(Block& memory) {
  int64_t total = 0;
  for (const Array& a : arrays_)
    if (a.type != tI8) total = plus(total, aligned(bytes_of(a.type, a.count)));
  memory.resize(total);
  uint8_t* to = memory.data();
  for (Array& a : arrays_) {
    if (a.type == tI8) continue;
    const int64_t bytes = bytes_of(a.type, a.count);
    std::memcpy(to, a.data, (size_t)bytes);
    a.data = to;
    to += aligned(bytes);
  }
}

const Tables::Array& Tables::array(int64_t id, int64_t type) const {
  if (id < 0 || id >= (int64_t)arrays_.size() || arrays_[(size_t)id].type != type)
    throw Refused("an operation names an array that is not there");
  return arrays_[(size_t)id];
}

const int8_t* Tables::weights(int64_t id, int64_t count) const {
  const Array& a = array(id, tI8);
  if (a.count != count) throw Refused("a projection has not as many weights as its sizes say");
  return reinterpret_cast<const int8_t*>(a.data);
}

}  // namespace ptq
