#pragma once
// Cold fetches beside a bare ring and a mapping; the hit path. One store, one thread.

#include "services/cli/bench/store/cold_reads.h"
#include "services/cli/bench/store/store_bench.h"
#include "store/client/store_client.h"

namespace moestro::cli {

/// Many experts in flight, and one at a time. `client` may hold more experts than one, but not all of them.
Status add_fetch_rows(const StoreBenchOptions& options, store::StoreClient& client, ColdReads& reads, std::vector<StoreRow>& rows);

/// Pins of resident experts: one worker, and two at once on the same 16 entries.
Status add_hit_rows(const StoreBenchOptions& options, store::StoreClient& one, store::StoreClient& two, std::vector<StoreRow>& rows);

/// Fetches `blobs` and lets go of each as it arrives. Seconds.
Result<double> fetch_all(store::StoreClient& client, std::span<const uint32_t> blobs);
std::vector<uint32_t> experts_of(const store::Manifest& manifest);

}  // namespace moestro::cli
