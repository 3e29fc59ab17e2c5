#include <algorithm>

#include "common/wire/worker_messages_generated.h"
#include "kernels/ops.h"
#include "services/worker/wire/orchestrator_messages.h"

namespace moestro::worker {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

template <typename T>
std::vector<std::byte> finish(FlatBufferBuilder& b, wire::WorkerBody type, Offset<T> body) {
  wire::FinishWorkerMessageBuffer(b, wire::CreateWorkerMessage(b, type, body.Union()));
  const auto* begin = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
  return {begin, begin + b.GetSize()};
}

Offset<wire::TokenScore> write_score(FlatBufferBuilder& b, const TokenScore& score) {
  std::vector<Offset<wire::TopLogprob>> best;
  for (const TopLogprob& t : score.best) best.push_back(wire::CreateTopLogprob(b, t.id, t.logprob));
  const auto best_offset = best.empty() ? 0 : b.CreateVector(best);
  return wire::CreateTokenScore(b, score.logprob, best_offset);
}

Offset<wire::SequenceResult> write_sequence(FlatBufferBuilder& b, const engine::SequenceOutcome& s) {
  std::vector<Offset<wire::SampledToken>> sampled;
  for (const engine::SampledToken& t : s.sampled) {
    const auto score = t.scored ? write_score(b, t.score) : 0;
    sampled.push_back(wire::CreateSampledToken(b, t.id, score));
  }
  std::vector<Offset<wire::TokenScore>> scores;
  for (const TokenScore& score : s.scores) scores.push_back(write_score(b, score));
  std::vector<Offset<wire::ActivationCount>> counts;
  for (const activation::ActivationCount& c : s.activations)
    counts.push_back(wire::CreateActivationCount(b, static_cast<uint16_t>(c.layer.value),
                                                 static_cast<uint16_t>(c.expert.value), c.tokens));
  const auto sampled_offset = b.CreateVector(sampled);
  const auto scores_offset = b.CreateVector(scores);
  const auto counts_offset = b.CreateVector(counts);
  const auto error = s.status.is_ok() ? 0 : b.CreateString(s.status.message());
  const auto state_sum = s.state_sum.empty() ? 0 : b.CreateVector(s.state_sum);
  return wire::CreateSequenceResult(b, s.id.value, sampled_offset, scores_offset, counts_offset,
                                    static_cast<uint32_t>(s.status.code()), error, state_sum, s.copies.choices,
                                    s.copies.low, s.copies.skipped);
}

uint32_t narrowed(uint64_t count) { return static_cast<uint32_t>(std::min<uint64_t>(count, UINT32_MAX)); }

Offset<wire::DeviceFigures> write_device(FlatBufferBuilder& b, const tier::TierFigures& f,
                                         const engine::DeviceWork& work) {
  std::vector<wire::DeviceLayer> layers;
  layers.reserve(f.layers.size());
  for (const tier::LayerCounters& c : f.layers)
    layers.emplace_back(narrowed(c.hits), narrowed(c.late), narrowed(c.misses), narrowed(c.evictions),
                        narrowed(c.prefetched), narrowed(c.prefetched_used), narrowed(c.prefetched_wasted));
  const auto layers_offset = b.CreateVectorOfStructs(layers);
  return wire::CreateDeviceFigures(b, layers_offset, f.moved_bytes, f.wasted_bytes, f.link_busy_us, f.resident,
                                   f.recent.uses, f.recent.hits, f.recent.lru_hits, f.recent.belady_hits,
                                   work.host_experts, work.host_rows, work.rewinds, work.kv_in_bytes,
                                   work.kv_out_bytes, f.staged_bytes);
}

}  // namespace

std::vector<std::byte> write_registration(const Registration& r) {
  FlatBufferBuilder b;
  const auto name = b.CreateString(r.name), model = b.CreateString(r.model), device = b.CreateString(r.device);
  return finish(
      b, wire::WorkerBody::RegisterWorker,
      wire::CreateRegisterWorker(b, kWorkerProtocol, name, model, r.pack_identity, device, 0, 1, r.kv_blocks,
                                 static_cast<uint32_t>(kernels::kKvBlockTokens), r.kv_epoch, r.context_max,
                                 r.step_tokens_max, r.step_sequences_max, r.moe_layers, r.experts, r.top_k, r.kv_sinks,
                                 r.kv_window, r.wants_history, r.device_slots, r.device_slot_bytes, r.kv_host_blocks,
                                 r.mixed, r.state_slots, r.state_interval, r.overtaking_tokens_max, r.tokenizer));
}

std::vector<std::byte> write_heartbeat(uint32_t worker, uint64_t plans_done, bool asks_to_leave) {
  FlatBufferBuilder b;
  return finish(b, wire::WorkerBody::Heartbeat, wire::CreateHeartbeat(b, worker, plans_done, asks_to_leave));
}

std::vector<std::byte> write_result(const engine::StepOutcome& outcome, const tier::TierFigures* device) {
  FlatBufferBuilder b(4096);
  std::vector<Offset<wire::SequenceResult>> sequences;
  for (const engine::SequenceOutcome& s : outcome.sequences) sequences.push_back(write_sequence(b, s));
  const auto sequences_offset = b.CreateVector(sequences);
  const auto device_offset = device == nullptr ? 0 : write_device(b, *device, outcome.device);
  const auto copies_offset = outcome.layer_copies.empty()
                                 ? 0
                                 : b.CreateVectorOfStructs<wire::LayerCopies>(
                                       outcome.layer_copies.size(), [&](size_t i, wire::LayerCopies* to) {
                                         const CopyCounts& c = outcome.layer_copies[i];
                                         *to = {narrowed(c.choices), narrowed(c.low), narrowed(c.skipped)};
                                       });
  return finish(b, wire::WorkerBody::StepResult,
                wire::CreateStepResult(b, outcome.plan.value, sequences_offset, outcome.step_us, outcome.stall_us,
                                       outcome.expert_hits, outcome.expert_misses, outcome.fetched_bytes, 0, 0,
                                       outcome.nonfinite_sequences, outcome.dropped_rows, device_offset,
                                       copies_offset, outcome.parked_us, outcome.parks, outcome.dense_bytes,
                                       outcome.dense_stall_us, outcome.kv_stall_us));
}

std::vector<std::byte> write_leaving(const Status& why) {
  FlatBufferBuilder b;
  const auto message = b.CreateString(why.message());
  return finish(b, wire::WorkerBody::Leaving,
                wire::CreateLeaving(b, static_cast<uint32_t>(why.code()), message));
}

std::vector<std::byte> write_history_reader(uint64_t segment, const Status& mapped) {
  FlatBufferBuilder b;
  const auto message = b.CreateString(mapped.message());
  return finish(b, wire::WorkerBody::HistoryReader, wire::CreateHistoryReader(b, segment, mapped.is_ok(), message));
}

std::vector<std::byte> write_failure(PlanId plan, const Status& why) {
  FlatBufferBuilder b;
  const auto message = b.CreateString(why.message());
  wire::StepResultBuilder result(b);
  result.add_plan(plan.value);
  result.add_error_code(static_cast<uint32_t>(why.code()));
  result.add_error(message);
  return finish(b, wire::WorkerBody::StepResult, result.Finish());
}

}  // namespace moestro::worker
