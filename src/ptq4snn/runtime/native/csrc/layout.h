// What Python and the kernels share. Written by runtime/native/header.py from layout.py, build.py and
// numerics/dither.py: change those, then run `python -m ptq4snn.runtime.native.header`. A test compares this file with
// them.
//
// A plan is one block of little-endian numbers: a header, tables of int64 (values, arrays, operations), then the bytes
// of the arrays. The rows of a table have the fields of its enumeration.
#pragma once
#include <cstdint>

// clang-format off

namespace ptq {

constexpr int64_t kMagic = 0x314e414c50515450;  // PTQPLAN1
constexpr int64_t kAlignment = 64;  // bytes, of arrays and of values

// How the integers of a value lie in memory; rows are [position][step][channel].
enum Format : int32_t {
  kPlanes1 = 1,  // bit planes, 64 channels a word
  kPlanes2 = 2,
  kPlanes3 = 3,
  kU8 = 4,
  kS8 = 5,  // value + 128 as a byte
  kI16 = 6,
  kI32 = 7,
  kI64 = 8,
};

// What an operation of a plan does.
enum Kind : int32_t {
  kQuantize = 0,
  kProject = 1,  // groups == 1, spikes or bytes
  kProjectNeuron = 2,  // the same with the neuron behind it
  kProjectRows = 3,  // any groups and any input
  kNeuron = 4,  // behind rows of numbers
  kNeuronAny = 5,  // every other neuron: potentials, factors, channels of their own
  kPool = 6,
  kGather = 7,
  kCombine = 8,
  kMultiply = 9,
  kAffine = 10,
  kClip = 11,
  kChoice = 12,
  kMatmul = 13,
  kTimeSum = 14,
  kOverTime = 15,  // correction of a projection whose input is a sum over other steps than at calibration
  kLoadState = 16,  // a state packed as one row for the whole sample
  kStoreState = 17,
  kKeep = 18,  // copy a value out
  kTake = 19,  // the current step of a value, inside of a loop
  kPut = 20,  // the current step of a loop into a value of all steps
  kKinds = 21,
};

enum How : int32_t { kSum, kMax, kMin, kGt, kGe, kLt, kLe, kEq, kNe, kHows };

// Bits of the fields of a packed state, widest first.
constexpr int kWidthCount = 10;
constexpr int kWidths[kWidthCount] = {32, 16, 8, 7, 6, 5, 4, 3, 2, 1};

enum Header : int32_t {
  hMagic, hSize, hValues, hArrays, hOps, hStates, hKept, hNumbers, hTimeBytes, hStillBytes, hLocalTimeBytes,
  hLocalStillBytes, hFields
};

enum ValueField : int32_t { vPositions, vChannels, vTime, vFormat, vLocal, vOffset, vFields };

enum ArrayField : int32_t { aType, aOffset, aCount, aFields };

enum ArrayType : int32_t { tI8, tI32, tI64, tF64, tTypes };

enum OpField : int32_t {
  oKind, oOutput, oSecond, oRegion, oSources, oWide, oHow, oWidth, oGroups, oState, oSlot, oPadsZero, oConstant, oLow,
  oHigh, oSteps, oCoefficients, oIndex, oIndexStrides, oSigns, oShifts, oPoolWeights, oInverse, oZeros, oTaps, oWindow,
  oTable, oAxisTaps, oAxisWeights, oCin, oCout, oBits, oShift, oNarrow, oWeights, oBias, oBiasRow, oRescaleM, oRescaleN,
  oLo, oHi, oTheta, oRho, oChargeM, oChargeN, oSettleM, oSettleN, oStateLow, oStateHigh, oNeuronChannels, oReset,
  oDither, oWideProducts, oOnce, oGain, oBound, oChannel, oElement, oWidths, oOrder, oZero, oLoop, oCarried, oLiftM,
  oLiftN, oMost, oFields
};

// Dither: phases are of 16 bits, which is also the largest shift.
constexpr int kPhaseBits = 16, kCycleBits = 4;
constexpr uint32_t kPhaseStride = 40503, kPhaseHalf = 2048;

// One call from outside.
struct Request {
  const float* x;  // [x_steps][batch][numbers]
  int64_t x_steps;
  int64_t batch;
  int64_t numbers;
  int64_t steps;
  int64_t first_step;
  const uint8_t* const* states;  // by state: [batch][bytes of a sample], or null: from rest
  uint8_t* const* states_to;  // where the call leaves them; may be the same
  const int64_t* state_bytes;  // bytes behind each of them
  int64_t* const* kept;  // by slot: [steps][batch][positions][channels], no steps without time
  const int64_t* kept_numbers;  // numbers behind each of them
  int64_t threads;
  int64_t path;  // of hot::Path
  int64_t profile;
};

// What an operation did in a call, for statistics.
struct Counters {
  int64_t nanoseconds;
  int64_t nonzero;
  int64_t inputs;
  int64_t synops;
  int64_t macs;
  int64_t event_calls;
  int64_t dense_calls;
};

namespace hot {

// The widths of fields that the hot kernels read and write themselves.
constexpr int kHotWidthCount = 6;
constexpr int kHotWidths[kHotWidthCount] = {32, 16, 8, 4, 3, 2};

enum class Reset : int { Hard, Soft, None };
constexpr int kResets = 3;

// Of a projection; Auto: by the measured density.
enum class Path : int { Auto, Event, Dense };
constexpr int kPaths = 3;

}  // namespace hot

}  // namespace ptq

// PTQ_LEVELS(f) is f(name, whether this machine runs it) for every instruction set level of this build, the best last.
// The build defines PTQ_HAVE_... for each that the compiler knows; the first needs none.

#define PTQ_LEVEL_SCALAR(f) \
  f(scalar, true)

#if defined(PTQ_HAVE_AVX2)
#define PTQ_LEVEL_AVX2(f) \
  f(avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") && \
    __builtin_cpu_supports("popcnt"))
#else
#define PTQ_LEVEL_AVX2(f)
#endif

#if defined(PTQ_HAVE_AVX512BW)
#define PTQ_LEVEL_AVX512BW(f) \
  f(avx512bw, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && \
    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma") && \
    __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt"))
#else
#define PTQ_LEVEL_AVX512BW(f)
#endif

#if defined(PTQ_HAVE_AVX512VNNI)
#define PTQ_LEVEL_AVX512VNNI(f) \
  f(avx512vnni, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && \
    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni") \
    && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt"))
#else
#define PTQ_LEVEL_AVX512VNNI(f)
#endif

#if defined(PTQ_HAVE_AVX512)
#define PTQ_LEVEL_AVX512(f) \
  f(avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && \
    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vbmi") \
    && __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512vnni") && \
    __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt"))
#else
#define PTQ_LEVEL_AVX512(f)
#endif

#define PTQ_LEVELS(f) PTQ_LEVEL_SCALAR(f) PTQ_LEVEL_AVX2(f) PTQ_LEVEL_AVX512BW(f) PTQ_LEVEL_AVX512VNNI(f) PTQ_LEVEL_AVX512(f)
