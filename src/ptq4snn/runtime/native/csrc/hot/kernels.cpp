// All kernels of one ISA level; compiled once for each:
//     scalar  (portable, also 64-bit ARM)  -DPTQ_ISA=scalar
//     avx2    -DPTQ_ISA=avx2 -mavx2 -mfma -mbmi2 -mpopcnt
//     avx512  -DPTQ_ISA=avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vbmi -mavx512vbmi2 -mavx512vnni
//             -mfma -mbmi2 -mpopcnt
// with -std=c++17 -O3 -ffp-contract=off -fno-strict-aliasing.
#include "grouped.h"
#include "neuron_rows.h"
#include "project.h"
#include "words.h"

#define PTQ_TEXT_(x) #x
#define PTQ_TEXT(x) PTQ_TEXT_(x)

namespace ptq {
namespace hot {
namespace PTQ_ISA {

extern const Kernels table;
const Kernels table = {
    PTQ_TEXT(PTQ_ISA), project_scratch, grouped_scratch, neuron_scratch, project_neuron, project_rows, grouped_rows,
    neuron_rows,       add_spikes,      logic_spikes,    max_pool,       spikes_to_rows, rows_to_spikes, sum_spikes,
    choose,
};

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
