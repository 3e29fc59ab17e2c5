#include "common/lanes/length_balance.h"

#include <algorithm>
#include <numeric>

namespace moestro::lanes {

namespace {
struct Open {
  size_t index;
  int64_t load, taken = 0;  ///< tokens to compute; tokens of the sequences that it was given here
  size_t sequences = 0;
};
}  // namespace

std::vector<std::optional<size_t>> balance_by_length(std::span<const int64_t> lengths, int64_t generated,
                                                     std::span<const PlaceRoom> rooms) {
  std::vector<std::optional<size_t>> placed(lengths.size());
  std::vector<size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return lengths[a] > lengths[b]; });
  std::vector<Open> open;
  for (size_t i = 0; i < rooms.size(); ++i)
    if (rooms[i].sequences_max > 0) open.push_back({i, rooms[i].tokens});
  for (const size_t sequence : order) {
    const auto least =
        std::min_element(open.begin(), open.end(), [](const Open& a, const Open& b) { return a.load < b.load; });
    if (least == open.end()) break;
    const int64_t taken = least->taken + lengths[sequence];
    if (taken + static_cast<int64_t>(least->sequences + 1) * generated > rooms[least->index].tokens_max) continue;
    placed[sequence] = least->index;
    least->taken = taken;
    least->load += lengths[sequence];
    if (++least->sequences == rooms[least->index].sequences_max) open.erase(least);
  }
  return placed;
}

std::vector<size_t> cut_by_length(std::span<const int64_t> lengths, size_t micro_batches) {
  const size_t count = std::clamp<size_t>(micro_batches, 1, std::max<size_t>(1, lengths.size()));
  std::vector<PlaceRoom> rooms(count, {0, INT64_MAX, 0});
  for (size_t i = 0; i < count; ++i) rooms[i].sequences_max = lengths.size() / count + (i < lengths.size() % count);
  std::vector<size_t> cut;
  for (const auto& place : balance_by_length(lengths, 0, rooms)) cut.push_back(*place);
  return cut;
}

}  // namespace moestro::lanes
