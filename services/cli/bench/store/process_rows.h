#pragma once
// Figures of whole processes: a worker that attaches to a warm store, and the memory of several workers.

#include "services/cli/bench/store/store_bench.h"
#include "store/pack/manifest.h"

namespace moestro::cli {

/// Starts its own store, orchestrator and workers.
Status add_process_rows(const StoreBenchOptions& options, const store::Manifest& manifest, std::vector<StoreRow>& rows);

}  // namespace moestro::cli
