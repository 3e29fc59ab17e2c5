#pragma once
#include "common/model/model_spec.h"
#include "common/status.h"

namespace moestro::cuda {

/// Whether the kernels for GPUs have all that the model asks for. An error names the first setting that they lack.
Status check_on_gpu(const model::ModelSpec& spec);

}  // namespace moestro::cuda
