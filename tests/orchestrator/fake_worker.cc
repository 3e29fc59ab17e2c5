#include "tests/orchestrator/fake_worker.h"

#include <gtest/gtest.h>

#include "common/wire/worker_messages_generated.h"

namespace moestro::orchestrator::testing {
namespace {

using flatbuffers::FlatBufferBuilder;

template <typename T>
std::vector<std::byte> finish(FlatBufferBuilder& b, wire::WorkerBody type, flatbuffers::Offset<T> body) {
  wire::FinishWorkerMessageBuffer(b, wire::CreateWorkerMessage(b, type, body.Union()));
  const auto* begin = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
  return {begin, begin + b.GetSize()};
}

net::DealerSocket connect(const std::string& endpoint) {
  auto socket = net::DealerSocket::connect(endpoint);
  MOESTRO_CHECK(socket.is_ok(), socket.status().message());
  return std::move(*socket);
}

const wire::WorkerMessage& message(const std::optional<net::Bytes>& bytes, wire::WorkerBody wanted) {
  MOESTRO_CHECK(bytes.has_value(), "the orchestrator said nothing");
  const auto* m = wire::GetWorkerMessage(bytes->data());
  MOESTRO_CHECK(m->body_type() == wanted, std::string("heard ") + wire::EnumNameWorkerBody(m->body_type()) +
                                              " instead of " + wire::EnumNameWorkerBody(wanted));
  return *m;
}

Plan read_plan(const wire::StepPlan& m) {
  Plan plan;
  plan.id = PlanId{m.plan()};
  plan.parent = PlanId{m.parent()};
  for (uint32_t i = 0; i < m.released()->size(); ++i)
    plan.released.push_back({SequenceId{m.released()->Get(i)}, m.released_lengths()->Get(i)});
  const auto& batch = *m.micro_batches()->Get(0);
  for (const auto* s : *batch.sequences()) {
    PlannedSequence p;
    p.id = SequenceId{s->id()};
    p.first_position = -1;
    p.blocks_first = s->blocks_first();
    p.blocks.assign(s->blocks()->begin(), s->blocks()->end());
    p.sample = s->sample();
    if (const auto* o = s->sampling()) {
      p.sampling = Sampling{o->temperature(), o->top_k(), o->top_p(), o->min_p(), o->seed(), o->choice(), o->logprobs(),
                            o->repetition_penalty(), o->presence_penalty(), o->frequency_penalty()};
      if (o->bias_ids() != nullptr) {
        std::vector<LogitBias> bias;
        for (uint32_t i = 0; i < o->bias_ids()->size(); ++i)
          bias.push_back({o->bias_ids()->Get(i), o->biases()->Get(i)});
        p.bias = std::make_shared<const std::vector<LogitBias>>(std::move(bias));
      }
      if (o->allowed() != nullptr)
        p.allowed = std::make_shared<const TokenMask>(o->allowed()->begin(), o->allowed()->end());
    }
    p.history_first = s->history_first();
    p.history_prompt = s->history_prompt();
    if (s->history() != nullptr) p.history.assign(s->history()->begin(), s->history()->end());
    p.score_targets.assign(s->score_targets()->begin(), s->score_targets()->end());
    p.score_top = s->score_top();
    p.text_ends = s->text_ends();
    p.counted = s->counted();
    p.state_sum_from = s->state_sum_from();
    p.low_share_max = s->low_share_max();
    if (s->ends() != nullptr) p.ends.assign(s->ends()->begin(), s->ends()->end());
    plan.sequences.push_back(std::move(p));
  }
  for (const auto* t : *batch.tokens()) {
    PlannedSequence& p = plan.sequences.at(t->sequence());
    if (p.tokens.empty()) p.first_position = t->position();
    p.tokens.push_back(t->id());
  }
  return plan;
}

flatbuffers::Offset<wire::TokenScore> write_score(FlatBufferBuilder& b, const TokenScore& score) {
  std::vector<flatbuffers::Offset<wire::TopLogprob>> best;
  for (const TopLogprob& t : score.best) best.push_back(wire::CreateTopLogprob(b, t.id, t.logprob));
  return wire::CreateTokenScore(b, score.logprob, b.CreateVector(best));
}

TokenScore score(TokenId id, float logprob, int32_t top) {
  TokenScore s{logprob, {}};
  for (int32_t i = 0; i < top; ++i) s.best.push_back({id + i, logprob - static_cast<float>(i)});
  return s;
}

}  // namespace

FakeWorker::FakeWorker(const std::string& endpoint) : socket_(connect(endpoint)) {}

void FakeWorker::send_bytes(const std::vector<std::byte>& bytes) { EXPECT_TRUE(socket_.send(bytes).is_ok()); }

void FakeWorker::send_registration(const Identity& who) {
  FlatBufferBuilder b;
  const auto name = b.CreateString(who.name), model = b.CreateString(who.model), device = b.CreateString("cpu");
  const WorkerLimits& l = who.limits;
  send_bytes(finish(
      b, wire::WorkerBody::RegisterWorker,
      wire::CreateRegisterWorker(b, who.protocol, name, model, who.pack, device, 0, who.ranks, l.kv_blocks,
                                 l.kv_block_tokens, who.epoch, l.context_max, l.step_tokens_max, l.step_sequences_max,
                                 static_cast<uint32_t>(who.experts.layers), static_cast<uint32_t>(who.experts.experts),
                                 static_cast<uint32_t>(who.experts.top_k), l.kv_sinks, l.kv_window, who.wants_history,
                                 who.device_slots, who.device_slot_bytes, l.kv_host_blocks, who.mixed,
                                 l.state_slots, l.state_interval, 0, who.tokenizer)));
}

void FakeWorker::send_heartbeat(bool asks_to_leave) {
  FlatBufferBuilder b;
  send_bytes(finish(b, wire::WorkerBody::Heartbeat, wire::CreateHeartbeat(b, 1, 0, asks_to_leave)));
}

void FakeWorker::send_leaving(const Status& why) {
  FlatBufferBuilder b;
  const auto message = b.CreateString(why.message());
  send_bytes(finish(b, wire::WorkerBody::Leaving,
                    wire::CreateLeaving(b, static_cast<uint32_t>(why.code()), message)));
}

void FakeWorker::answer(const PlanOutcome& outcome, int device_layers) {
  FlatBufferBuilder b;
  std::vector<flatbuffers::Offset<wire::SequenceResult>> sequences;
  for (const SequenceOutcome& s : outcome.sequences) {
    std::vector<flatbuffers::Offset<wire::SampledToken>> sampled;
    for (const SampledToken& t : s.sampled)
      sampled.push_back(wire::CreateSampledToken(b, t.id, write_score(b, t.score)));
    std::vector<flatbuffers::Offset<wire::TokenScore>> scores;
    for (const TokenScore& t : s.scores) scores.push_back(write_score(b, t));
    const auto sampled_list = b.CreateVector(sampled);
    const auto score_list = b.CreateVector(scores);
    const auto why = b.CreateString(s.error.message());
    std::vector<flatbuffers::Offset<wire::ActivationCount>> counts;
    for (const activation::ActivationCount& c : s.activations)
      counts.push_back(wire::CreateActivationCount(b, static_cast<uint16_t>(c.layer.value),
                                                   static_cast<uint16_t>(c.expert.value), c.tokens));
    const auto count_list = b.CreateVector(counts);
    const auto state_sum = b.CreateVector(s.state_sum);
    sequences.push_back(wire::CreateSequenceResult(b, s.id.value, sampled_list, score_list, count_list,
                                                   static_cast<uint32_t>(s.error.code()), why, state_sum,
                                                   s.copies.choices, s.copies.low, s.copies.skipped));
  }
  const auto list = b.CreateVector(sequences);
  const auto why = b.CreateString(outcome.error.message());
  flatbuffers::Offset<wire::DeviceFigures> device;
  if (device_layers >= 0) {
    const std::vector<wire::DeviceLayer> layers(static_cast<size_t>(device_layers),
                                                wire::DeviceLayer(3, 1, 1, 1, 2, 1, 1));
    device = wire::CreateDeviceFigures(b, b.CreateVectorOfStructs(layers), 500, 100, 300, 2, 8, 6, 4, 7);
  }
  send_bytes(finish(b, wire::WorkerBody::StepResult,
                    wire::CreateStepResult(b, outcome.plan.value, list, 1000, 0, 3, 1, 4096,
                                           static_cast<uint32_t>(outcome.error.code()), why, 2, 5, device)));
}

std::optional<net::Bytes> FakeWorker::next(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    auto got = socket_.receive();
    MOESTRO_CHECK(got.is_ok(), got.status().message());
    if (got->has_value()) {
      const auto* release = wire::GetWorkerMessage((*got)->data())->body_as_Release();
      if (release == nullptr) return std::move(*got);
      for (uint32_t i = 0; i < release->released()->size(); ++i)
        released_.push_back({SequenceId{release->released()->Get(i)}, release->released_lengths()->Get(i)});
      continue;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return std::nullopt;
    (void)socket_.wait(left).is_ok();
  }
}

WorkerId FakeWorker::hear_registered() {
  const auto bytes = next(kAnswerLimit);
  return WorkerId{message(bytes, wire::WorkerBody::Registered).body_as_Registered()->worker()};
}

std::pair<bool, std::vector<HistoryEntry>> FakeWorker::hear_history() {
  const auto bytes = next(kAnswerLimit);
  const auto* history = message(bytes, wire::WorkerBody::History).body_as_History();
  std::vector<HistoryEntry> entries;
  for (const auto* e : *history->entries()) entries.push_back({e->answer(), static_cast<int32_t>(e->entry())});
  return {history->reset(), std::move(entries)};
}

uint64_t FakeWorker::hear_history_segment() {
  const auto bytes = next(kAnswerLimit);
  return message(bytes, wire::WorkerBody::History).body_as_History()->segment();
}

void FakeWorker::answer_history_segment(uint64_t segment, bool mapped) {
  FlatBufferBuilder b;
  const auto why = b.CreateString(mapped ? "" : "a test");
  send_bytes(finish(b, wire::WorkerBody::HistoryReader, wire::CreateHistoryReader(b, segment, mapped, why)));
}

FakeWorker::Refused FakeWorker::hear_refused() {
  const auto bytes = next(kAnswerLimit);
  const auto* refused = message(bytes, wire::WorkerBody::Refused).body_as_Refused();
  return {static_cast<Code>(refused->code()), refused->message()->str()};
}

Plan FakeWorker::hear_plan() {
  const auto bytes = next(kAnswerLimit);
  return read_plan(*message(bytes, wire::WorkerBody::StepPlan).body_as_StepPlan());
}

bool FakeWorker::hear_drain() {
  const auto bytes = next(kAnswerLimit);
  return message(bytes, wire::WorkerBody::Drain).body_as_Drain()->attach_anew();
}

std::optional<Plan> FakeWorker::try_plan(std::chrono::milliseconds limit) {
  const auto bytes = next(limit);
  if (!bytes) return std::nullopt;
  return read_plan(*message(bytes, wire::WorkerBody::StepPlan).body_as_StepPlan());
}

std::array<double, kHidden> state(TokenId token, int64_t position) {
  return {static_cast<double>(token), static_cast<double>(position), -1, 0.5};
}

PlanOutcome compute(const Plan& plan, const std::function<TokenId(const PlannedSequence&, int64_t)>& next) {
  PlanOutcome outcome;
  outcome.plan = plan.id;
  for (const PlannedSequence& s : plan.sequences) {
    SequenceOutcome& out = outcome.sequences.emplace_back();
    out.id = s.id;
    if (s.sample) {
      const TokenId id = next(s, s.first_position + static_cast<int64_t>(s.tokens.size()) - 1);
      out.sampled.push_back({id, score(id, -0.25f, s.sampling.logprobs)});
    }
    for (TokenId target : s.score_targets)
      out.scores.push_back(target < 0 ? TokenScore{} : score(target, -0.5f, s.score_top));
    if (s.state_sum_from < 0) continue;
    out.state_sum.resize(kHidden);
    for (size_t i = 0; i < s.tokens.size(); ++i)
      if (const int64_t position = s.first_position + static_cast<int64_t>(i); position >= s.state_sum_from)
        for (size_t k = 0; k < kHidden; ++k) out.state_sum[k] += state(s.tokens[i], position)[k];
  }
  return outcome;
}

}  // namespace moestro::orchestrator::testing
