// fuzz-deps: moestro_control moestro_wire
// What a worker sends to the orchestrator, and what is counted of it.

#include "common/check.h"
#include "orchestrator/control/expert_use.h"
#include "orchestrator/control/worker_figures.h"
#include "orchestrator/control/worker_wire.h"

namespace {

/// As the result of a worker with a device, of a model of 2 layers with 4 experts.
void count(moestro::orchestrator::StepReport& report) {
  using namespace moestro::orchestrator;
  Registration worker;
  worker.experts = {2, 4, 1}, worker.device_slots = 4, worker.device_slot_bytes = 16;
  ControlSnapshot all;
  auto figures = begin_figures(worker, all);
  count_step(report, figures, all);
  MOESTRO_CHECK(
      figures.device_resident <= 4 && figures.recent.hits <= figures.recent.uses && all.device_layers.size() == 2,
      "figures that can be");
  ExpertUse use;
  use.begin(worker.experts);
  for (const SequenceOutcome& s : report.outcome.sequences) use.count(s.activations, moestro::Nanos(0));
  for (const float share : use.shares().cells) MOESTRO_CHECK(share >= 0 && share <= 1, "a share");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto said = moestro::orchestrator::read_worker_message({reinterpret_cast<const std::byte*>(data), size});
  if (!said.is_ok()) return 0;
  if (const auto* worker = std::get_if<moestro::orchestrator::Registration>(&*said))
    MOESTRO_CHECK(worker->limits.kv_blocks > 0 && worker->limits.kv_block_tokens > 0, "limits that can be divided by");
  if (auto* report = std::get_if<moestro::orchestrator::StepReport>(&*said)) count(*report);
  return 0;
}
