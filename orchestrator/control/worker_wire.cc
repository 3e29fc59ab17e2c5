#include "orchestrator/control/worker_wire.h"

#include <algorithm>
#include <cstring>

#include "common/wire/worker_messages_generated.h"

namespace moestro::orchestrator {
namespace {

using flatbuffers::FlatBufferBuilder;

std::string text(const flatbuffers::String* s) { return s == nullptr ? std::string() : s->str(); }

/// An error as a peer names it; codes of a newer peer become kInternal.
Status peer_error(uint32_t code, const flatbuffers::String* message) {
  if (code == 0) return Status::ok();
  const auto known = code <= static_cast<uint32_t>(Code::kInternal) ? static_cast<Code>(code) : Code::kInternal;
  return Status(known, message == nullptr || message->size() == 0 ? "the worker gave no reason" : message->str());
}

Result<Registration> read_registration(const wire::RegisterWorker& m) {
  Registration r;
  r.protocol = m.protocol();
  r.name = text(m.name());
  r.model = text(m.model());
  r.device = text(m.device());
  r.pack_identity = m.pack_identity();
  r.tokenizer = m.tokenizer();
  r.kv_epoch = m.kv_epoch();
  r.ranks = m.ranks();
  r.limits = WorkerLimits{m.kv_blocks(),          m.kv_block_tokens(), m.context_max(), m.step_tokens_max(),
                          m.step_sequences_max(), m.kv_sinks(),        m.kv_window(),   m.kv_host_blocks(),
                          m.state_slots(),        m.state_interval(), m.overtaking_tokens_max()};
  constexpr uint32_t kLayersMax = 4096, kExpertsMax = 1u << 16;
  if (m.moe_layers() > kLayersMax || m.experts() > kExpertsMax || m.top_k() > m.experts())
    return invalid_argument("registration: " + std::to_string(m.moe_layers()) + " layers of " +
                            std::to_string(m.experts()) + " experts");
  r.experts = {static_cast<int32_t>(m.moe_layers()), static_cast<int32_t>(m.experts()),
               static_cast<int32_t>(m.top_k())};
  r.wants_history = m.wants_history();
  r.mixed = m.mixed();
  r.device_slots = m.device_slots();
  r.device_slot_bytes = m.device_slot_bytes();
  constexpr uint32_t kSlotsMax = 1u << 24;
  constexpr uint64_t kSlotBytesMax = uint64_t{1} << 36;
  if (r.device_slots > 0 && (r.device_slots > kSlotsMax || r.device_slot_bytes == 0 ||
                             r.device_slot_bytes > kSlotBytesMax || m.moe_layers() == 0))
    return invalid_argument("registration: a device of " + std::to_string(r.device_slots) + " slots of " +
                            std::to_string(r.device_slot_bytes) + " bytes for the experts of " +
                            std::to_string(m.moe_layers()) + " layers");
  constexpr uint32_t kLimitMost = 1u << 30;
  for (uint32_t n : {r.limits.kv_blocks, r.limits.kv_block_tokens, r.limits.context_max, r.limits.step_tokens_max,
                     r.limits.step_sequences_max}) {
    if (n == 0 || n > kLimitMost) return invalid_argument("registration: a limit is zero or absurd");
  }
  if (r.limits.kv_host_blocks > kLimitMost || (r.limits.kv_host_blocks > 0 && r.limits.kv_window > 0))
    return invalid_argument("registration: KV blocks in host memory with a window, or an absurd number of them");
  if (r.limits.overtaking_tokens_max > r.limits.step_tokens_max)
    return invalid_argument("registration: plans that overtake have more tokens than others");
  const uint32_t interval = r.limits.state_interval;
  if (r.limits.state_slots > kLimitMost || interval > kLimitMost ||
      (r.limits.state_slots > 0) != (interval > 0) || interval % r.limits.kv_block_tokens != 0 ||
      (r.limits.state_slots > 0 && r.limits.kv_window > 0))
    return invalid_argument("registration: states of sequences with a window, or absurd limits of them");
  if (r.limits.kv_sinks > kLimitMost || r.limits.kv_window > kLimitMost ||
      (r.limits.kv_window == 0 && r.limits.kv_sinks > 0))
    return invalid_argument("registration: attention sinks without a window, or an absurd limit of either");
  return r;
}

TokenScore read_score(const wire::TokenScore* m) {
  TokenScore score;
  if (m == nullptr) return score;
  score.logprob = m->logprob();
  if (m->best() != nullptr) {
    score.best.reserve(m->best()->size());
    for (const wire::TopLogprob* top : *m->best()) score.best.push_back({top->id(), top->logprob()});
  }
  return score;
}

DeviceStep read_device(const wire::DeviceFigures& m) {
  DeviceStep d;
  d.moved_bytes = m.moved_bytes();
  d.wasted_bytes = m.wasted_bytes();
  d.staged_bytes = m.staged_bytes();
  d.link_busy_us = m.link_busy_us();
  d.resident = m.resident();
  d.recent = {m.recent_uses(), m.recent_hits(), m.recent_lru_hits(), m.recent_belady_hits()};
  d.work = {.host_experts = m.host_experts(),
            .host_rows = m.host_rows(),
            .rewinds = m.rewinds(),
            .kv_in_bytes = m.kv_in_bytes(),
            .kv_out_bytes = m.kv_out_bytes()};
  if (m.layers() == nullptr) return d;
  d.layers.reserve(m.layers()->size());
  for (const wire::DeviceLayer* l : *m.layers())
    d.layers.push_back({.hits = l->hits(),
                        .misses = uint64_t{l->late()} + l->misses(),
                        .late = l->late(),
                        .evictions = l->evictions(),
                        .prefetched = l->prefetched(),
                        .prefetched_used = l->prefetched_used(),
                        .prefetched_wasted = l->prefetched_wasted()});
  return d;
}

/// The verifier does not check that 8-byte elements of a vector are aligned: they are copied, not read in place.
std::vector<double> read_doubles(const flatbuffers::Vector<double>* m) {
  std::vector<double> values(m == nullptr ? 0 : m->size());
  if (!values.empty()) std::memcpy(values.data(), m->Data(), values.size() * sizeof(double));
  return values;
}

StepReport read_result(const wire::StepResult& m) {
  StepReport report;
  report.outcome.plan = PlanId{m.plan()};
  report.outcome.error = peer_error(m.error_code(), m.error());
  report.step_us = m.step_us();
  report.parked_us = m.parked_us();
  report.parks = m.parks();
  report.stall_us = m.stall_us();
  report.expert_hits = m.expert_hits();
  report.expert_misses = m.expert_misses();
  report.fetched_bytes = m.fetched_bytes();
  report.dense_bytes = m.dense_bytes(), report.dense_stall_us = m.dense_stall_us();
  report.kv_stall_us = m.kv_stall_us();
  report.nonfinite_sequences = m.nonfinite_sequences();
  report.dropped_rows = m.dropped_rows();
  if (m.device() != nullptr) report.device = read_device(*m.device());
  if (m.layer_copies() != nullptr)
    for (const wire::LayerCopies* l : *m.layer_copies())
      report.layer_copies.push_back({l->choices(), l->low(), l->skipped()});
  if (m.sequences() == nullptr) return report;
  for (const wire::SequenceResult* s : *m.sequences()) {
    SequenceOutcome outcome;
    outcome.id = SequenceId{s->id()};
    outcome.error = peer_error(s->error_code(), s->error());
    if (s->sampled() != nullptr)
      for (const wire::SampledToken* t : *s->sampled()) outcome.sampled.push_back({t->id(), read_score(t->score())});
    if (s->scores() != nullptr)
      for (const wire::TokenScore* t : *s->scores()) outcome.scores.push_back(read_score(t));
    if (s->activations() != nullptr) {
      outcome.activations.reserve(s->activations()->size());
      for (const wire::ActivationCount* c : *s->activations())
        outcome.activations.push_back({MoeLayerId(c->moe_layer()), ExpertId(c->expert()), c->tokens()});
    }
    outcome.state_sum = read_doubles(s->state_sum());
    outcome.copies = {s->choices(), s->low_choices(), s->skipped_choices()};
    if (!outcome.copies.is_possible())
      outcome.error = internal_error("the worker's counts of low copies do not fit the choices of the plan");
    report.outcome.sequences.push_back(std::move(outcome));
  }
  return report;
}

template <typename T>
std::vector<std::byte> finish(FlatBufferBuilder& b, wire::WorkerBody type, flatbuffers::Offset<T> body) {
  wire::FinishWorkerMessageBuffer(b, wire::CreateWorkerMessage(b, type, body.Union()));
  const auto* begin = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
  return {begin, begin + b.GetSize()};
}

flatbuffers::Offset<wire::HistoryEntry> write_entry(FlatBufferBuilder& b, const activation::ActivationHistory& history,
                                                    HistoryEntry entry) {
  const std::span<const uint8_t> cells = (entry.answer ? history.answers : history.prompts).cells(entry.entry);
  return wire::CreateHistoryEntry(b, entry.answer, static_cast<uint32_t>(entry.entry),
                                  b.CreateVector(cells.data(), cells.size()));
}

std::vector<std::byte> write_entries(const activation::ActivationHistory& history,
                                     std::span<const HistoryEntry> entries, bool reset) {
  FlatBufferBuilder b(entries.size() * history.answers.shape().cells() + 1024);
  std::vector<flatbuffers::Offset<wire::HistoryEntry>> written;
  for (const HistoryEntry& e : entries) written.push_back(write_entry(b, history, e));
  const auto written_offset = b.CreateVector(written);
  return finish(b, wire::WorkerBody::History,
                wire::CreateHistory(b, reset, static_cast<uint32_t>(history.answers.capacity()), written_offset));
}

flatbuffers::Offset<wire::PlanSequence> write_sequence(FlatBufferBuilder& b, const PlannedSequence& s) {
  const Sampling& p = s.sampling;
  flatbuffers::Offset<flatbuffers::Vector<int32_t>> bias_ids, history, ends;
  flatbuffers::Offset<flatbuffers::Vector<float>> biases;
  flatbuffers::Offset<flatbuffers::Vector<uint32_t>> allowed;
  flatbuffers::Offset<flatbuffers::String> request;
  if (s.sample && s.bias && !s.bias->empty()) {
    std::vector<int32_t> ids;
    std::vector<float> values;
    for (const LogitBias& one : *s.bias) ids.push_back(one.id), values.push_back(one.bias);
    bias_ids = b.CreateVector(ids);
    biases = b.CreateVector(values);
  }
  if (s.sample && s.allowed) allowed = b.CreateVector(*s.allowed);
  if (!s.history.empty()) history = b.CreateVector(s.history);
  if (!s.ends.empty()) ends = b.CreateVector(s.ends);
  if (!s.request_id.empty()) request = b.CreateString(s.request_id);
  flatbuffers::Offset<flatbuffers::Vector<const wire::StateWrite*>> states;
  if (!s.states.empty())
    states = b.CreateVectorOfStructs<wire::StateWrite>(s.states.size(), [&s](size_t i, wire::StateWrite* w) {
      *w = wire::StateWrite(static_cast<uint32_t>(s.states[i].tokens), s.states[i].slot);
    });
  flatbuffers::Offset<flatbuffers::Vector<uint32_t>> memory;
  if (!s.memory.empty()) memory = b.CreateVector(s.memory);
  const auto sampling = s.sample ? wire::CreateSampling(b, p.temperature, p.top_k, p.top_p, p.min_p, p.seed, p.choice,
                                                        p.logprobs, 1, p.repetition_penalty, p.presence_penalty,
                                                        p.frequency_penalty, bias_ids, biases, allowed)
                                 : 0;
  return wire::CreatePlanSequence(b, s.id.value, s.blocks_first, b.CreateVector(s.blocks), s.sample, sampling,
                                  b.CreateVector(s.score_targets), s.score_top, s.history_first, history,
                                  s.history_prompt, static_cast<uint32_t>(s.counted), ends, s.text_ends, request,
                                  static_cast<int32_t>(s.state_sum_from), s.low_share_max, s.state, states, s.source,
                                  memory, s.memory_tokens);
}

struct ReleasedVectors {
  flatbuffers::Offset<flatbuffers::Vector<uint64_t>> ids;
  flatbuffers::Offset<flatbuffers::Vector<uint32_t>> lengths;
};

ReleasedVectors write_released(FlatBufferBuilder& b, std::span<const ReleasedSequence> released) {
  std::vector<uint64_t> ids;
  std::vector<uint32_t> lengths;
  for (const ReleasedSequence& r : released)
    ids.push_back(r.id.value), lengths.push_back(static_cast<uint32_t>(r.length));
  return {b.CreateVector(ids), b.CreateVector(lengths)};
}

}  // namespace

Result<WorkerSays> read_worker_message(std::span<const std::byte> body) {
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(body.data()), body.size(), /*max_depth=*/16,
                                 /*max_tables=*/16'000'000);
  if (body.size() < 8 || !wire::WorkerMessageBufferHasIdentifier(body.data()) ||
      !wire::VerifyWorkerMessageBuffer(verifier))
    return invalid_argument("not a worker message");
  const auto* message = wire::GetWorkerMessage(body.data());
  // The verifier lets a union pass that names its kind and has nothing in it.
  if (message->body() == nullptr) return invalid_argument("a worker message without a body");
  switch (message->body_type()) {
    case wire::WorkerBody::RegisterWorker: {
      MOESTRO_ASSIGN_OR_RETURN(auto registration, read_registration(*message->body_as_RegisterWorker()));
      return WorkerSays{std::move(registration)};
    }
    case wire::WorkerBody::Heartbeat:
      return WorkerSays{HeartbeatMessage{message->body_as_Heartbeat()->asks_to_leave()}};
    case wire::WorkerBody::StepResult: return WorkerSays{read_result(*message->body_as_StepResult())};
    case wire::WorkerBody::HistoryReader: {
      const auto* r = message->body_as_HistoryReader();
      return WorkerSays{HistoryReader{r->segment(), r->mapped(), text(r->message())}};
    }
    case wire::WorkerBody::Leaving: {
      const auto* l = message->body_as_Leaving();
      return WorkerSays{Leaving{peer_error(l->code(), l->message())}};
    }
    default: return invalid_argument("a message that a worker does not send");
  }
}

std::vector<std::byte> write_registered(WorkerId worker) {
  FlatBufferBuilder b;
  return finish(b, wire::WorkerBody::Registered, wire::CreateRegistered(b, worker.value));
}

std::vector<std::byte> write_refused(const Status& why) {
  FlatBufferBuilder b;
  return finish(b, wire::WorkerBody::Refused,
                wire::CreateRefused(b, static_cast<uint32_t>(why.code()), b.CreateString(why.message())));
}

std::vector<std::byte> write_drain(bool attach_anew) {
  FlatBufferBuilder b;
  return finish(b, wire::WorkerBody::Drain, wire::CreateDrain(b, attach_anew));
}

std::vector<std::byte> write_history_segment(uint64_t segment) {
  FlatBufferBuilder b;
  return finish(b, wire::WorkerBody::History, wire::CreateHistory(b, false, 0, 0, segment));
}

std::vector<std::byte> write_history(const activation::ActivationHistory& history,
                                     std::span<const HistoryEntry> changes) {
  return write_entries(history, changes, false);
}

std::vector<std::vector<std::byte>> write_history(const activation::ActivationHistory& history) {
  constexpr size_t kMessageBytesMax = 4 << 20;
  const size_t at_once = std::max<size_t>(1, kMessageBytesMax / std::max<size_t>(1, history.answers.shape().cells()));
  std::vector<HistoryEntry> all;
  for (int32_t i = 0; i < history.prompts.size(); ++i) all.push_back({false, i});
  for (int32_t i = 0; i < history.answers.size(); ++i) all.push_back({true, i});
  std::vector<std::vector<std::byte>> messages;
  for (size_t first = 0; first == 0 || first < all.size(); first += at_once)
    messages.push_back(
        write_entries(history, std::span(all).subspan(first, std::min(at_once, all.size() - first)), first == 0));
  return messages;
}

std::vector<std::byte> write_release(std::span<const ReleasedSequence> released) {
  FlatBufferBuilder b;
  const ReleasedVectors vectors = write_released(b, released);
  return finish(b, wire::WorkerBody::Release, wire::CreateRelease(b, vectors.ids, vectors.lengths));
}

std::vector<std::byte> write_plan(const Plan& plan, const std::string& model) {
  FlatBufferBuilder b(4096);
  std::vector<flatbuffers::Offset<wire::PlanSequence>> sequences;
  std::vector<wire::PlanToken> tokens;
  for (uint32_t i = 0; i < plan.sequences.size(); ++i) {
    const PlannedSequence& s = plan.sequences[i];
    for (size_t t = 0; t < s.tokens.size(); ++t) {
      const auto position = static_cast<int32_t>(s.first_position + static_cast<int64_t>(t));
      tokens.emplace_back(i, position, s.tokens[t], -1);
    }
    sequences.push_back(write_sequence(b, s));
  }
  const auto batch = wire::CreateMicroBatch(b, b.CreateVector(sequences), b.CreateVectorOfStructs(tokens));
  const auto batches = b.CreateVector(&batch, 1);
  const ReleasedVectors released = write_released(b, plan.released);
  const auto model_offset = b.CreateString(model);
  const auto copies = plan.kv_copies.empty() ? 0
                                             : b.CreateVectorOfStructs<wire::KvCopy>(
                                                   plan.kv_copies.size(), [&plan](size_t i, wire::KvCopy* c) {
                                                     *c = wire::KvCopy(plan.kv_copies[i].from, plan.kv_copies[i].to);
                                                   });
  return finish(b, wire::WorkerBody::StepPlan,
                wire::CreateStepPlan(b, plan.id.value, plan.parent.value, model_offset, batches, copies, released.ids,
                                     released.lengths, plan.overtakes));
}

}  // namespace moestro::orchestrator
