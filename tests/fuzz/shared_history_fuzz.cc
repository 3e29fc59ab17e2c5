// fuzz-deps: moestro_activation PkgConfig::xxhash
// A history in memory that another process writes: the head, and then a reader that matches against whatever the rest
// is. Where the first byte is odd the head is made whole first.

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "common/activation/eamc_matcher.h"
#include "common/activation/history_mapping.h"
#include "common/check.h"

namespace {

using namespace moestro::activation;

struct Free {
  void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t(64)); }
};

void make_whole(HistoryHead& head, size_t size) {
  head.magic = kHistoryMagic, head.version = kHistoryVersion;
  head.layers %= 5, head.experts %= 9, head.capacity %= 20, head.top_k = std::min(head.top_k, head.experts);
  head.bytes = history_bytes(eamc_layout(head.layers, head.experts, head.capacity));
  if (head.bytes > size) head.capacity = 0, head.bytes = kHistoryPage;
  head.checksum = XXH3_64bits(&head, offsetof(HistoryHead, checksum));
}

void read(const EamcView& view) {
  const EamcShape& shape = view.shape();
  MOESTRO_CHECK(view.size() >= 0 && view.size() <= view.capacity(), "entries that there is room for");
  EamcMatcher matcher(view, 2);
  std::vector<uint8_t> row(static_cast<size_t>(shape.experts));
  for (int token = 0; token < 3; ++token) {
    matcher.begin_iteration();
    for (int32_t layer = 0; layer < shape.layers; ++layer) {
      const std::vector<ActivationCount> counts{
          {moestro::MoeLayerId(0), moestro::ExpertId(static_cast<uint32_t>(token)), 1}};
      matcher.add_row(layer, counts, token == 1 ? 3 : 1);
      for (const EamcMatch& m : matcher.best(EamcMatcher::kMatchesMax)) {
        MOESTRO_CHECK(m.entry >= 0 && m.entry < view.capacity() && std::isfinite(m.score) && m.score > 0, "a match");
        (void)matcher.read_row(m, layer, row);
      }
    }
    matcher.end_iteration();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t bytes = size - 1;
  const std::unique_ptr<std::byte[], Free> memory(new (std::align_val_t(64)) std::byte[bytes + 1]);
  std::memcpy(memory.get(), data + 1, bytes);
  if (data[0] % 2 == 1 && bytes >= kHistoryPage) make_whole(*reinterpret_cast<HistoryHead*>(memory.get()), bytes);
  HistoryHead head{};
  std::memcpy(&head, memory.get(), std::min(bytes, sizeof head));
  const EamcShape shape{static_cast<int32_t>(head.layers), static_cast<int32_t>(head.experts),
                        static_cast<int32_t>(head.top_k)};
  const auto views = view_history({memory.get(), bytes}, {head.segment, head.pack_identity, shape});
  if (!views.is_ok() || shape.cells() > 4096) return 0;
  read(views->prompts);
  read(views->answers);
  return 0;
}
