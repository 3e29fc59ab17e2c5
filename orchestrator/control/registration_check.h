#pragma once
// Which workers an orchestrator accepts.

#include <cstdint>
#include <optional>
#include <string>

#include "orchestrator/control/worker_wire.h"

namespace moestro::orchestrator {

/// Why an orchestrator of `model` refuses a worker. `tokenizer`: XXH3-64 of the orchestrator's tokenizer.json; 0: not
/// known. `experts`: the shape of the workers that are already connected. The worker may have another version of their
/// pack.
Status check_registration(const Registration& worker, const std::string& model, uint64_t tokenizer,
                          std::optional<activation::EamcShape> experts);

}  // namespace moestro::orchestrator
