#include <algorithm>
#include <cstring>
#include <string>

#include "common/wire/worker_messages_generated.h"
#include "services/worker/wire/orchestrator_messages.h"

namespace moestro::worker {
namespace {

using engine::StepPlan;

constexpr uint32_t kRequestBytesMax = 256;

std::string text(const flatbuffers::String* s) { return s == nullptr ? std::string() : s->str(); }

Status refusal(uint32_t code, const flatbuffers::String* message) {
  const bool known = code > 0 && code <= static_cast<uint32_t>(Code::kInternal);
  const std::string why = text(message);
  return Status(known ? static_cast<Code>(code) : Code::kInternal,
                why.empty() ? "the orchestrator gave no reason" : why);
}

uint64_t copied(const uint8_t* bytes) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

/// A length that is not there is taken for all of them.
std::vector<ReleasedSequence> read_released(const flatbuffers::Vector<uint64_t>* ids,
                                            const flatbuffers::Vector<uint32_t>* lengths) {
  std::vector<ReleasedSequence> released;
  for (uint32_t i = 0; ids != nullptr && i < ids->size(); ++i) {
    // The verifier does not check that 8-byte elements of a vector are aligned: they are copied, not read in place.
    const SequenceId id(flatbuffers::EndianScalar(copied(ids->Data() + i * sizeof(uint64_t))));
    released.push_back({id, lengths != nullptr && i < lengths->size() ? lengths->Get(i) : INT64_MAX});
  }
  return released;
}

/// How its tokens are drawn.
void read_sampling(const wire::Sampling& m, engine::PlanSequence& s) {
  s.sampling = {.temperature = m.temperature(),
                .top_k = m.top_k(),
                .top_p = m.top_p(),
                .min_p = m.min_p(),
                .seed = m.seed(),
                .choice = m.choice(),
                .logprobs = m.logprobs(),
                .repetition_penalty = m.repetition_penalty(),
                .presence_penalty = m.presence_penalty(),
                .frequency_penalty = m.frequency_penalty()};
  const uint32_t biases =
      m.bias_ids() == nullptr || m.biases() == nullptr ? 0 : std::min(m.bias_ids()->size(), m.biases()->size());
  for (uint32_t i = 0; i < biases; ++i) s.bias.push_back({m.bias_ids()->Get(i), m.biases()->Get(i)});
  if (m.allowed() != nullptr) s.allowed.assign(m.allowed()->begin(), m.allowed()->end());
}

Result<engine::PlanSequence> read_sequence(const wire::PlanSequence& m) {
  engine::PlanSequence s;
  s.id = SequenceId(m.id());
  s.blocks_first = m.blocks_first();
  if (m.blocks() != nullptr) s.blocks.assign(m.blocks()->begin(), m.blocks()->end());
  s.sample = m.sample();
  if (m.sampling() != nullptr) {
    if (m.sampling()->tokens_max() != 1)
      return unsupported("sampling " + std::to_string(m.sampling()->tokens_max()) +
                         " tokens a plan; this worker samples one");
    read_sampling(*m.sampling(), s);
  }
  if (m.score_targets() != nullptr) s.score_targets.assign(m.score_targets()->begin(), m.score_targets()->end());
  s.score_top = m.score_top();
  s.history_first = m.history_first();
  s.history_prompt = m.history_prompt();
  if (m.history() != nullptr) s.history.assign(m.history()->begin(), m.history()->end());
  s.text_ends = m.text_ends();
  s.counted = m.counted();
  if (m.ends() != nullptr) s.ends.assign(m.ends()->begin(), m.ends()->end());
  s.state_sum_from = m.state_sum_from();
  if (!(m.low_share_max() >= 0 && m.low_share_max() <= 1))
    return invalid_argument("a share of low copies that is not from 0 to 1");
  s.low_share_max = m.low_share_max();
  s.state = m.state();
  if (m.states() != nullptr)
    for (const wire::StateWrite* w : *m.states()) s.states.push_back({w->tokens(), w->slot()});
  s.source = m.source();
  if (m.memory() != nullptr) s.memory.assign(m.memory()->begin(), m.memory()->end());
  s.memory_tokens = m.memory_tokens();
  return s;
}

Status read_micro_batch(const wire::MicroBatch& m, StepPlan& plan) {
  const auto first_sequence = static_cast<uint32_t>(plan.sequences.size());
  plan.micro_batches.push_back(first_sequence);
  const uint32_t count = m.sequences() == nullptr ? 0 : m.sequences()->size();
  for (uint32_t i = 0; i < count; ++i) {
    MOESTRO_ASSIGN_OR_RETURN(auto sequence, read_sequence(*m.sequences()->Get(i)));
    plan.sequences.push_back(std::move(sequence));
  }
  if (m.tokens() == nullptr) return Status::ok();
  for (const wire::PlanToken* t : *m.tokens()) {
    if (t->parent() != -1) return unsupported("token trees (a parent other than -1)");
    if (t->sequence() >= count) return invalid_argument("a token names no sequence of its micro-batch");
    plan.tokens.push_back({first_sequence + t->sequence(), t->position(), t->id()});
  }
  return Status::ok();
}

Result<StepPlan> read_plan(const wire::StepPlan& m) {
  StepPlan plan;
  plan.id = PlanId(m.plan());
  plan.parent = PlanId(m.parent());
  plan.model = text(m.model());
  if (m.micro_batches() != nullptr)
    for (const wire::MicroBatch* batch : *m.micro_batches()) MOESTRO_RETURN_IF_ERROR(read_micro_batch(*batch, plan));
  if (m.kv_copies() != nullptr)
    for (const wire::KvCopy* c : *m.kv_copies()) plan.kv_copies.push_back({c->from(), c->to()});
  plan.released = read_released(m.released(), m.released_lengths());
  plan.overtakes = m.overtakes();
  return plan;
}

Result<HistoryUpdate> read_history(const wire::History& m) {
  if (m.capacity() > activation::kHistoryCapacityMax)
    return invalid_argument("a history of " + std::to_string(m.capacity()) + " requests");
  HistoryUpdate update{m.reset(), static_cast<int32_t>(m.capacity()), {}, m.segment()};
  if (m.entries() == nullptr || update.segment != 0) return update;
  for (const wire::HistoryEntry* e : *m.entries()) {
    if (e->cells() == nullptr || e->entry() >= m.capacity())
      return invalid_argument("a history's entry " + std::to_string(e->entry()) +
                              " without cells, or beyond its capacity");
    update.entries.push_back({e->answer(), static_cast<int32_t>(e->entry()), {e->cells()->begin(), e->cells()->end()}});
  }
  return update;
}

std::vector<RequestName> read_names(const wire::StepPlan& m) {
  std::vector<RequestName> names;
  if (m.micro_batches() == nullptr) return names;
  for (const wire::MicroBatch* batch : *m.micro_batches()) {
    for (uint32_t i = 0; batch->sequences() != nullptr && i < batch->sequences()->size(); ++i) {
      const wire::PlanSequence& s = *batch->sequences()->Get(i);
      if (s.request() != nullptr && s.request()->size() > 0 && s.request()->size() <= kRequestBytesMax)
        names.push_back({SequenceId(s.id()), s.request()->str()});
    }
  }
  return names;
}

}  // namespace

Status HistoryUpdate::apply(activation::ActivationHistory& history) const {
  const activation::EamcShape shape = history.answers.shape();
  if (reset && static_cast<uint64_t>(capacity) * shape.cells() > activation::kHistoryCellsMax)
    return invalid_argument("a history of " + std::to_string(capacity) +
                            " requests takes more memory than this worker gives it");
  if (reset) history = activation::ActivationHistory(shape, capacity);
  for (const Entry& e : entries)
    MOESTRO_RETURN_IF_ERROR((e.answer ? history.answers : history.prompts).set(e.entry, e.cells));
  return Status::ok();
}

Result<OrchestratorSays> read_orchestrator_message(std::span<const std::byte> body) {
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(body.data()), body.size(), /*max_depth=*/16,
                                 /*max_tables=*/16'000'000);
  if (body.size() < 8 || !wire::WorkerMessageBufferHasIdentifier(body.data()) ||
      !wire::VerifyWorkerMessageBuffer(verifier))
    return invalid_argument("not a worker message");
  const auto* message = wire::GetWorkerMessage(body.data());
  if (message->body() == nullptr) return invalid_argument("a worker message without a body");
  switch (message->body_type()) {
    case wire::WorkerBody::Registered: return OrchestratorSays{Registered{message->body_as_Registered()->worker()}};
    case wire::WorkerBody::Refused: {
      const auto* r = message->body_as_Refused();
      return OrchestratorSays{Refused{refusal(r->code(), r->message())}};
    }
    case wire::WorkerBody::Release: {
      const auto* r = message->body_as_Release();
      return OrchestratorSays{Release{read_released(r->released(), r->released_lengths())}};
    }
    case wire::WorkerBody::Drain: return OrchestratorSays{Drain{message->body_as_Drain()->attach_anew()}};
    case wire::WorkerBody::History: {
      MOESTRO_ASSIGN_OR_RETURN(auto update, read_history(*message->body_as_History()));
      return OrchestratorSays{std::move(update)};
    }
    case wire::WorkerBody::Heartbeat: return OrchestratorSays{Ignored{}};
    case wire::WorkerBody::StepPlan: {
      const auto* plan = message->body_as_StepPlan();
      return OrchestratorSays{PlanMessage{PlanId(plan->plan()), read_plan(*plan), read_names(*plan)}};
    }
    default: return invalid_argument("a message that an orchestrator does not send");
  }
}

}  // namespace moestro::worker
