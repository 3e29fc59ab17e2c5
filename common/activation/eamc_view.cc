#include "common/activation/eamc_view.h"

#include "common/activation/eamc_kernels.h"

namespace moestro::activation {
namespace {

uint64_t next_id() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

EamcView::EamcView(const EamcShape& shape, int32_t capacity, const EamcCounters* counters, const std::byte* arrays)
    : id_(next_id()),
      shape_(shape),
      capacity_(capacity),
      layout_(eamc_layout(static_cast<uint64_t>(shape.layers), static_cast<uint64_t>(shape.experts),
                          static_cast<uint64_t>(capacity))),
      counters_(counters),
      arrays_(arrays) {}

uint64_t EamcView::version(int32_t entry) const {
  const uint64_t version = version_word(entry).load(std::memory_order_acquire);
  return version % 2 == 0 ? version : kNoVersion;
}

bool EamcView::holds(int32_t entry, uint64_t version) const {
  return version != kNoVersion && still_is(version_word(entry), version);
}

bool EamcView::copy(int32_t entry, uint64_t version, size_t first, std::span<uint8_t> out) const {
  copy_cells(cells(entry) + first, out.size(), out.data());
  return holds(entry, version);
}

}  // namespace moestro::activation
