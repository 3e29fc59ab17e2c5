#pragma once
// Cold fetches, compared with a bare ring and a mapping; and the hit path. One store, one thread.

#include <random>

#include "services/cli/bench/store/cold_reads.h"
#include "services/cli/bench/store/store_bench.h"
#include "store/client/store_client.h"

namespace moestro::cli {

/// Many experts in flight, and one at a time. `client` can hold more than one expert, but not all.
Status add_fetch_rows(const StoreBenchOptions& options, store::StoreClient& client, ColdReads& reads,
                      std::vector<StoreRow>& rows);

/// Pins of resident experts: one worker, and two at once on the same 16 entries.
Status add_hit_rows(const StoreBenchOptions& options, store::StoreClient& one, store::StoreClient& two,
                    std::vector<StoreRow>& rows);

/// One expert on demand while prefetches fill the drive, compared with the same without prefetches. Two workers, so
/// that one demands experts that the other does not prefetch.
Status add_prefetch_row(const StoreBenchOptions& options, store::StoreClient& demands, store::StoreClient& prefetches,
                        ColdReads& reads, std::vector<StoreRow>& rows);

/// Experts that are not resident now, in random order, at most `bytes` together, at least one.
Result<std::vector<uint32_t>> cold_experts(store::StoreClient& client, uint64_t bytes, std::mt19937& random);
/// Fetches `blobs`, and releases each as it arrives unless it is kept in `held`. Returns seconds.
Result<double> fetch_all(store::StoreClient& client, std::span<const uint32_t> blobs,
                         std::vector<store::Lease>* held = nullptr);
std::vector<uint32_t> experts_of(const store::Manifest& manifest);
uint64_t bytes_of(const store::Manifest& manifest, std::span<const uint32_t> blobs);

}  // namespace moestro::cli
