#!/bin/sh
# Build the kernel harness:  build.sh SOURCE.cpp PROGRAM [flags ...]
# CXX=aarch64-linux-gnu-g++ cross-compiles; LEVELS=scalar leaves the x86 levels out.
set -e
here=$(cd "$(dirname "$0")" && pwd)
csrc=$here/../../../src/ptq4snn/runtime/native/csrc
source=$1
program=$2
shift 2
CXX=${CXX:-g++}
flags="-std=c++17 -O3 -g -Wall -Wextra -Wno-psabi -Wno-maybe-uninitialized -Wno-uninitialized -ffp-contract=off -fno-strict-aliasing -fwrapv -I$csrc -I$here $*"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

level() { # name, machine flags
  name=$1
  shift
  $CXX $flags "$@" -DPTQ_ISA="$name" -c "$csrc/hot/kernels.cpp" -o "$work/$name.o" &
}

level scalar
have=
case ${LEVELS:-all}-$($CXX -dumpmachine) in
all-x86_64*)
  level avx2 -mavx2 -mfma -mbmi2 -mpopcnt
  level avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vbmi -mavx512vbmi2 -mavx512vnni -mfma -mbmi2 -mpopcnt
  have="-DPTQ_HAVE_AVX2 -DPTQ_HAVE_AVX512"
  ;;
esac
wait
$CXX $flags $have "$source" "$csrc/hot/pack.cpp" "$csrc/tap_runs.cpp" "$csrc/hot/dispatch.cpp" "$work"/*.o -o "$program"
