// All kernels of one instruction set level; compiled once for each with -DPTQ_ISA=NAME and what build.py's table of
// levels says (python build.py --flags NAME), -std=c++17 -O3 -ffp-contract=off -fno-strict-aliasing.
#include "grouped.h"
#include "neuron_rows.h"
#include "project.h"
#include "words.h"

namespace ptq {
namespace hot {
namespace PTQ_ISA {

extern const Kernels table;
const Kernels table = {
    PTQ_NAME,       project_scratch, grouped_scratch, neuron_scratch, expanded_bytes, expand_weights,
    project_neuron, project_rows,    grouped_rows,    neuron_rows,    add_spikes,     logic_spikes,
    max_pool,       spikes_to_rows,  rows_to_spikes,  sum_spikes,     choose,
};

}  // namespace PTQ_ISA
}  // namespace hot
}  // namespace ptq
