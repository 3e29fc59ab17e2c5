#pragma once
// Cold fetches beside a bare ring and a mapping; the hit path. One store, one thread.

#include <random>

#include "services/cli/bench/store/cold_reads.h"
#include "services/cli/bench/store/store_bench.h"
#include "store/client/store_client.h"

namespace moestro::cli {

/// Many experts in flight, and one at a time. `client` may hold more experts than one, but not all of them.
Status add_fetch_rows(const StoreBenchOptions& options, store::StoreClient& client, ColdReads& reads,
                      std::vector<StoreRow>& rows);

/// Pins of resident experts: one worker, and two at once on the same 16 entries.
Status add_hit_rows(const StoreBenchOptions& options, store::StoreClient& one, store::StoreClient& two,
                    std::vector<StoreRow>& rows);

/// One expert on demand while the drive is full of prefetches, beside the same without. Two workers, so that what one
/// wants is not what the other reads ahead.
Status add_prefetch_row(const StoreBenchOptions& options, store::StoreClient& demands, store::StoreClient& prefetches,
                        ColdReads& reads, std::vector<StoreRow>& rows);

/// Experts that are not resident now, in an order that is no layer's, of `bytes` together at most, one at least.
Result<std::vector<uint32_t>> cold_experts(store::StoreClient& client, uint64_t bytes, std::mt19937& random);
/// Fetches `blobs`, and lets go of each as it arrives unless it is to be held in `held`. Seconds.
Result<double> fetch_all(store::StoreClient& client, std::span<const uint32_t> blobs,
                         std::vector<store::Lease>* held = nullptr);
std::vector<uint32_t> experts_of(const store::Manifest& manifest);
uint64_t bytes_of(const store::Manifest& manifest, std::span<const uint32_t> blobs);

}  // namespace moestro::cli
