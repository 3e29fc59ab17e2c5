#include "services/worker/engine/kv_link.h"

namespace moestro::engine {

void draw_kv(KvLink& link, std::vector<KvCarried>& scratch, lanes::Timeline* timeline) {
  scratch.clear();
  link.take_carried(scratch);
  if (timeline == nullptr) return;
  for (const KvCarried& c : scratch)
    timeline->transfer({.lane = c.lane,
                        .layer = c.layer,
                        .micro_batch = c.micro_batch,
                        .bytes = static_cast<uint64_t>(c.bytes),
                        .kind = c.kind,
                        .begin = c.begin,
                        .end = c.end});
}

}  // namespace moestro::engine
