#include "common/tier/dense_window.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "common/config/units.h"

namespace moestro::tier {
namespace {

/// A size that is enough, short enough to be typed: in whole MiB, if there are any.
std::string as_given(uint64_t bytes) {
  constexpr uint64_t kMiB = 1 << 20;
  return config::format_size(bytes < kMiB ? bytes : (bytes + kMiB - 1) / kMiB * kMiB);
}

/// For each worker: the layer that it computes with, and the one that is being read for it.
constexpr uint32_t kPlacesPerWorker = 2;
constexpr uint32_t kPlacesMin = 2;

uint64_t sum(const std::vector<uint64_t>& layers) { return std::accumulate(layers.begin(), layers.end(), uint64_t{0}); }
uint64_t largest(const std::vector<uint64_t>& layers) {
  return layers.empty() ? 0 : *std::ranges::max_element(layers);
}
uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }
uint32_t workers_of(const DenseNeeds& needs) { return std::max<uint32_t>(needs.workers, 1); }

uint64_t bytes_of_window(const DenseNeeds& needs, uint32_t places) {
  return needs.fixed_bytes + places * largest(needs.layers) + workers_of(needs) * needs.expert_bytes_max;
}

bool may_all_stay(const DenseNeeds& needs) { return needs.staying_share >= 1; }

/// `bytes` of the layers can stay. Each layer adds its part of what cannot; it is streamed when that has become half a
/// layer.
void spread(const DenseNeeds& needs, uint64_t bytes, DenseWindow& window) {
  const auto all = static_cast<double>(sum(needs.layers));
  const double share = 1 - std::min(1.0, static_cast<double>(bytes) / all);
  double due = 0;
  uint64_t staying = 0;
  for (size_t i = 0; i < needs.layers.size(); ++i) {
    const auto length = static_cast<double>(needs.layers[i]);
    due += share * length;
    window.streamed[i] = due >= length / 2;
    if (window.streamed[i]) due -= length;
    else staying += needs.layers[i];
  }
  for (size_t i = needs.layers.size(); i-- > 0 && staying > bytes;)  // what rounding has left over
    if (!window.streamed[i]) window.streamed[i] = true, staying -= needs.layers[i];
  for (size_t i = 0; i < needs.layers.size(); ++i)
    if (window.streamed[i] && staying + needs.layers[i] <= bytes)
      window.streamed[i] = false, staying += needs.layers[i];
}

/// A single layer needs no second place, and none needs to be longer than the longest that takes turns.
void trim(const DenseNeeds& needs, DenseWindow& window) {
  window.places = std::min(window.places, window.streamed_layers);
  window.place_bytes = 0;
  for (size_t i = 0; i < needs.layers.size(); ++i)
    if (window.streamed[i]) window.place_bytes = std::max(window.place_bytes, needs.layers[i]);
}

}  // namespace

uint64_t bytes_if_all_stay(const DenseNeeds& needs) {
  return needs.fixed_bytes + sum(needs.layers) + workers_of(needs) * needs.expert_bytes_max;
}

uint64_t dense_bytes_min(const DenseNeeds& needs) {
  const uint64_t in_turn = bytes_of_window(needs, std::max(kPlacesMin, workers_of(needs)));
  return may_all_stay(needs) ? std::min(bytes_if_all_stay(needs), in_turn) : in_turn;
}

Result<DenseWindow> plan_dense_window(const DenseNeeds& needs, uint64_t memory_bytes) {
  DenseWindow window;
  window.streamed.assign(needs.layers.size(), false);
  if (may_all_stay(needs) && memory_bytes >= bytes_if_all_stay(needs)) return window;
  const uint32_t least = std::max(kPlacesMin, workers_of(needs));
  if (memory_bytes < dense_bytes_min(needs))
    return exhausted("an arena of " + config::readable_size(memory_bytes) + " is too small: dense weights need " +
                     config::readable_size(needs.fixed_bytes + sum(needs.layers)) + " (" +
                     config::readable_size(bytes_of_window(needs, least) -
                                           workers_of(needs) * needs.expert_bytes_max) +
                     " if their layers take turns) and the largest expert " +
                     config::readable_size(needs.expert_bytes_max) + "; raise --dram to at least " +
                     as_given(dense_bytes_min(needs)));
  window.place_bytes = largest(needs.layers);
  window.places = kPlacesPerWorker * workers_of(needs);
  while (window.places > least && bytes_of_window(needs, window.places) > memory_bytes) --window.places;
  // A layer is used by each step, an expert by some: room for more experts than a worker has at once is worth less.
  const uint64_t experts =
      std::max<uint64_t>(workers_of(needs) * needs.expert_bytes_max,
                         std::min(needs.experts_bytes, uint64_t{workers_of(needs)} * needs.experts_at_once *
                                                           needs.expert_bytes_max));
  const auto most = static_cast<uint64_t>(needs.staying_share * static_cast<double>(sum(needs.layers)) + 0.5);
  const uint64_t room = minus(memory_bytes, needs.fixed_bytes + window.places * window.place_bytes + experts);
  spread(needs, std::min(room, most), window);
  for (size_t i = 0; i < needs.layers.size(); ++i)
    if (window.streamed[i]) ++window.streamed_layers, window.streamed_bytes += needs.layers[i];
  if (needs.on_device) trim(needs, window);
  return window;
}

}  // namespace moestro::tier
