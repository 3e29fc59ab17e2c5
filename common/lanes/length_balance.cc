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

}  // namespace moestro::lanes
