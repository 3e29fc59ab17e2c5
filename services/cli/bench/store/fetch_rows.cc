#include "services/cli/bench/store/fetch_rows.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "common/config/units.h"

namespace moestro::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFetchPatience{60000};

/// Three ways to read the same blobs: GB/s, or milliseconds where `gigabytes` is 0.
struct Rounds {
  std::vector<double> store, ring, mapping;

  /// The store, and right after it the ring.
  Status add_pair(store::StoreClient& client, ColdReads& reads, std::span<const uint32_t> blobs, double gigabytes) {
    std::vector<store::Lease> held;
    MOESTRO_ASSIGN_OR_RETURN(const double by_store, fetch_all(client, blobs, &held));
    MOESTRO_ASSIGN_OR_RETURN(const double by_ring, reads.by_ring(held, client.memory()));
    store.push_back(figure(by_store, gigabytes)), ring.push_back(figure(by_ring, gigabytes));
    return Status::ok();
  }
  /// Apart from the others: what it reads ahead is still under way when it has all it wants, and delays whoever comes
  /// next.
  Status add_mapping(ColdReads& reads, std::span<const uint32_t> blobs, double gigabytes) {
    MOESTRO_ASSIGN_OR_RETURN(const double seconds, reads.by_mapping(blobs));
    mapping.push_back(figure(seconds, gigabytes));
    return Status::ok();
  }

 private:
  static double figure(double seconds, double gigabytes) { return gigabytes > 0 ? gigabytes / seconds : seconds * 1e3; }
};

StoreRow row(std::string what, std::string unit, double value, std::string baseline_name, double baseline) {
  StoreRow r;
  r.what = std::move(what), r.unit = std::move(unit), r.value = value;
  r.baseline_name = std::move(baseline_name), r.baseline = baseline;
  if (baseline > 0) r.ratio = value / baseline;
  return r;
}

/// The median of the ratios of each pair: what drifts between pairs drops out.
double ratio_of_rounds(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return quantile(ratios, 0.5);
}

void add_rows(const Rounds& r, const char* what, const char* unit, StoreRow::Aim kind, double aim,
              const std::string& how, std::vector<StoreRow>& rows) {
  const double value = quantile(r.store, 0.5);
  const std::array baselines{std::pair{"io_uring alone", &r.ring}, std::pair{"mmap", &r.mapping}};
  for (const auto& [name, figures] : baselines) {
    StoreRow next = row(what, unit, value, name, quantile(*figures, 0.5));
    next.ratio = ratio_of_rounds(r.store, *figures);
    if (figures == &r.ring) next.aim_kind = kind, next.aim = aim;
    next.how = how;
    rows.push_back(std::move(next));
  }
}

}  // namespace

std::vector<uint32_t> experts_of(const store::Manifest& manifest) {
  std::vector<uint32_t> experts;
  for (uint32_t blob = 0; blob < manifest.blobs.size(); ++blob)
    if (manifest.blobs[blob].kind == store::BlobKind::kExpert &&
        manifest.blobs[blob].precision == manifest.expert_precisions.front())
      experts.push_back(blob);
  return experts;
}

uint64_t bytes_of(const store::Manifest& manifest, std::span<const uint32_t> blobs) {
  uint64_t sum = 0;
  for (const uint32_t blob : blobs) sum += manifest.blobs[blob].length;
  return sum;
}

Result<std::vector<uint32_t>> cold_experts(store::StoreClient& client, uint64_t bytes, std::mt19937& random) {
  std::vector<uint32_t> experts = experts_of(client.manifest()), cold;
  std::shuffle(experts.begin(), experts.end(), random);
  uint64_t sum = 0;
  for (const uint32_t blob : experts) {
    if (client.try_pin(blob)) continue;
    sum += client.manifest().blobs[blob].length;
    if (sum > bytes && !cold.empty()) break;
    cold.push_back(blob);
  }
  if (cold.empty()) return invalid_argument("every expert is resident: nothing is cold; give less --dram");
  return cold;
}

Result<double> fetch_all(store::StoreClient& client, std::span<const uint32_t> blobs, std::vector<store::Lease>* held) {
  const auto begin = Clock::now();
  MOESTRO_RETURN_IF_ERROR(client.fetch(blobs, {}));
  for (size_t i = 0; i < blobs.size(); ++i) {
    MOESTRO_ASSIGN_OR_RETURN(store::Lease arrived, client.next_arrival(kFetchPatience));
    if (held != nullptr) held->push_back(std::move(arrived));
  }
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Status add_fetch_rows(const StoreBenchOptions& o, store::StoreClient& client, ColdReads& reads,
                      std::vector<StoreRow>& rows) {
  std::mt19937 random(1);
  Rounds many, one;
  const store::Manifest& manifest = client.manifest();
  const uint64_t quarter = bytes_of(manifest, experts_of(manifest)) / 4;
  const uint64_t bytes =
      std::min({static_cast<uint64_t>(o.fetch_bytes), quarter, client.share_bytes()});  // all are held at once
  size_t in_flight = 0;
  for (int64_t round = 0; round < o.rounds; ++round) {
    MOESTRO_ASSIGN_OR_RETURN(const std::vector<uint32_t> cold, cold_experts(client, bytes, random));
    in_flight = cold.size();
    const double gigabytes = static_cast<double>(bytes_of(manifest, cold)) * 1e-9;
    MOESTRO_RETURN_IF_ERROR(many.add_pair(client, reads, cold, gigabytes));
    std::vector<std::vector<uint32_t>> singles;
    for (int64_t i = 0; i < o.singles; ++i) {
      MOESTRO_ASSIGN_OR_RETURN(singles.emplace_back(), cold_experts(client, 0, random));
      MOESTRO_RETURN_IF_ERROR(one.add_pair(client, reads, singles.back(), 0));
    }
    MOESTRO_RETURN_IF_ERROR(many.add_mapping(reads, cold, gigabytes));
    for (const std::vector<uint32_t>& single : singles) MOESTRO_RETURN_IF_ERROR(one.add_mapping(reads, single, 0));
  }
  const std::string slices = "slices of " + config::readable_size(reads.slice_bytes_max()) + " at most, " +
                             std::to_string(o.depth) + " in flight in the baseline";
  add_rows(many, "cold fetch, all in flight", "GB/s", StoreRow::Aim::kAtLeast, 0.92,
           std::to_string(in_flight) + " experts, " + config::readable_size(bytes) + ", " + slices, rows);
  const uint64_t length = manifest.blobs[experts_of(manifest).front()].length;
  add_rows(one, "cold fetch of one expert", "ms", StoreRow::Aim::kAtMost, 1.08,
           config::readable_size(length) + ", " + slices + "; median of " + std::to_string(one.store.size()), rows);
  StoreRow tail =
      row("cold fetch of one expert, p99", "ms", quantile(one.store, 0.99), "io_uring alone", quantile(one.ring, 0.99));
  tail.how = rows.back().how;
  rows.push_back(std::move(tail));
  return Status::ok();
}

}  // namespace moestro::cli
