// fuzz-deps: moestro_control moestro_wire
// What a worker sends to the orchestrator.

#include "common/check.h"
#include "orchestrator/control/worker_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto said = moestro::orchestrator::read_worker_message({reinterpret_cast<const std::byte*>(data), size});
  if (!said.is_ok()) return 0;
  if (const auto* worker = std::get_if<moestro::orchestrator::Registration>(&*said))
    MOESTRO_CHECK(worker->limits.kv_blocks > 0 && worker->limits.kv_block_tokens > 0, "limits that can be divided by");
  return 0;
}
