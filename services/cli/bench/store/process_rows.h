#pragma once
// What concerns whole processes: a worker that comes to a warm store, what several of them weigh.

#include "services/cli/bench/store/store_bench.h"
#include "store/pack/manifest.h"

namespace moestro::cli {

/// Starts store, orchestrator and workers of its own.
Status add_process_rows(const StoreBenchOptions& options, const store::Manifest& manifest, std::vector<StoreRow>& rows);

}  // namespace moestro::cli
