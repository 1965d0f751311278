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

level() { # name; its flags come from the table of levels
  $CXX $flags $(${PYTHON:-python3} "$csrc/../build.py" --flags "$1") -c "$csrc/hot/kernels.cpp" -o "$work/$1.o" &
}

level scalar
have=
case ${LEVELS:-all}-$($CXX -dumpmachine) in
all-x86_64*)
  level avx2
  level avx512bw
  level avx512vnni
  level avx512
  have="-DPTQ_HAVE_AVX2 -DPTQ_HAVE_AVX512BW -DPTQ_HAVE_AVX512VNNI -DPTQ_HAVE_AVX512"
  ;;
esac
wait
$CXX $flags $have "$source" "$csrc/hot/pack.cpp" "$csrc/tap_runs.cpp" "$csrc/hot/dispatch.cpp" "$work"/*.o -o "$program"
