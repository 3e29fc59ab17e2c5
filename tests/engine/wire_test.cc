#include <gtest/gtest.h>

#include "common/wire/worker_messages_generated.h"
#include "services/worker/wire/orchestrator_messages.h"

namespace moestro::worker {
namespace {

using flatbuffers::FlatBufferBuilder;

std::vector<std::byte> finish(FlatBufferBuilder& b, flatbuffers::Offset<wire::StepPlan> plan) {
  wire::FinishWorkerMessageBuffer(b, wire::CreateWorkerMessage(b, wire::WorkerBody::StepPlan, plan.Union()));
  const auto* begin = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
  return {begin, begin + b.GetSize()};
}

std::vector<std::byte> plan_message(int32_t parent, uint32_t tokens_max, const std::string& request_id = "req-7",
                                    double low_share_max = 0.25) {
  FlatBufferBuilder b;
  const std::vector<uint32_t> blocks = {4, 5};
  const std::vector<int32_t> targets = {9, -1};
  const std::vector<int32_t> bias_ids = {3, 9}, history = {5, 6, -1}, ends = {2, 9};
  const std::vector<float> biases = {1.5f, -2.0f};
  const std::vector<uint32_t> allowed = {7, 1};
  const auto id_list = b.CreateVector(bias_ids);
  const auto bias_list = b.CreateVector(biases);
  const auto mask = b.CreateVector(allowed);
  const auto sampling =
      wire::CreateSampling(b, 0.5f, 3, 0.9f, 0.1f, 77, 2, 4, tokens_max, 1.25f, 0.5f, -0.5f, id_list, bias_list, mask);
  const auto request = b.CreateString(request_id);
  const std::vector<wire::StateWrite> states = {{31, 8}, {32, 6}};
  const auto memory = b.CreateVector(std::vector<uint32_t>{7, 8});
  const auto sequence =
      wire::CreatePlanSequence(b, 12, 1, b.CreateVector(blocks), true, sampling, b.CreateVector(targets), 6, 4,
                               b.CreateVector(history), 2, 21, b.CreateVector(ends), true, request, 31, low_share_max,
                               6, b.CreateVectorOfStructs(states), true, memory, 20);
  const std::vector<wire::PlanToken> tokens = {{0, 30, 8, -1}, {0, 31, 9, parent}};
  const auto batch = wire::CreateMicroBatch(b, b.CreateVector(&sequence, 1), b.CreateVectorOfStructs(tokens));
  const std::vector<flatbuffers::Offset<wire::MicroBatch>> batches = {batch, batch};
  const auto batch_list = b.CreateVector(batches);
  const std::vector<uint64_t> released = {3};
  const auto released_list = b.CreateVector(released);
  const auto lengths = b.CreateVector(std::vector<uint32_t>{17});
  const auto model = b.CreateString("m");
  return finish(b, wire::CreateStepPlan(b, 5, 4, model, batch_list, 0, released_list, lengths));
}

TEST(WorkerWire, ARequestsIdOfAbsurdLengthIsLeftOut) {
  const auto said = read_orchestrator_message(plan_message(-1, 1, std::string(257, 'x')));
  ASSERT_TRUE(said.is_ok());
  EXPECT_TRUE(std::get<PlanMessage>(*said).names.empty());
}

TEST(WorkerWire, ReadsAPlanWithAllItSays) {
  const auto said = read_orchestrator_message(plan_message(-1, 1));
  ASSERT_TRUE(said.is_ok());
  const auto& message = std::get<PlanMessage>(*said);
  ASSERT_TRUE(message.plan.is_ok());
  const engine::StepPlan& p = *message.plan;
  EXPECT_EQ(p.id, PlanId(5));
  EXPECT_EQ(p.parent, PlanId(4));
  EXPECT_EQ(p.model, "m");
  EXPECT_EQ(p.released, (std::vector<ReleasedSequence>{{SequenceId(3), 17}}));
  ASSERT_EQ(p.sequences.size(), 2u) << "micro-batches lie one after another";
  EXPECT_EQ(p.micro_batches, (std::vector<uint32_t>{0, 1}));
  const engine::PlanSequence& s = p.sequences[0];
  EXPECT_EQ(s.id, SequenceId(12));
  EXPECT_EQ(s.blocks_first, 1u);
  EXPECT_EQ(s.blocks, (std::vector<uint32_t>{4, 5}));
  EXPECT_TRUE(s.sample);
  EXPECT_EQ(s.score_targets, (std::vector<TokenId>{9, -1}));
  EXPECT_EQ(s.score_top, 6);
  EXPECT_FLOAT_EQ(s.sampling.temperature, 0.5f);
  EXPECT_EQ(s.sampling.top_k, 3);
  EXPECT_FLOAT_EQ(s.sampling.top_p, 0.9f);
  EXPECT_FLOAT_EQ(s.sampling.min_p, 0.1f);
  EXPECT_EQ(s.sampling.seed, 77u);
  EXPECT_EQ(s.sampling.choice, 2u);
  EXPECT_EQ(s.sampling.logprobs, 4);
  EXPECT_EQ(std::tuple(s.sampling.repetition_penalty, s.sampling.presence_penalty, s.sampling.frequency_penalty),
            std::tuple(1.25f, 0.5f, -0.5f));
  ASSERT_EQ(s.bias.size(), 2u);
  EXPECT_EQ(std::pair(s.bias[1].id, s.bias[1].bias), std::pair(9, -2.0f));
  EXPECT_EQ(s.allowed, (std::vector<uint32_t>{7, 1}));
  EXPECT_EQ(s.history, (std::vector<TokenId>{5, 6, kSampledByParent}));
  EXPECT_EQ(s.ends, (std::vector<TokenId>{2, 9}));
  EXPECT_TRUE(s.text_ends);
  EXPECT_EQ(s.counted, 21);
  EXPECT_EQ(s.state_sum_from, 31);
  EXPECT_EQ(s.low_share_max, 0.25);
  EXPECT_EQ(s.state, 6u);
  EXPECT_EQ(s.states, (std::vector<StateWrite>{{31, 8}, {32, 6}}));
  EXPECT_TRUE(s.source);
  EXPECT_EQ(s.memory, (std::vector<uint32_t>{7, 8}));
  EXPECT_EQ(s.memory_tokens, 20);
  EXPECT_EQ(std::pair(s.history_first, s.history_prompt), std::pair(int64_t{4}, int64_t{2}));
  ASSERT_EQ(message.names.size(), 2u);
  EXPECT_EQ(std::pair(message.names[1].sequence, message.names[1].request),
            std::pair(SequenceId(12), std::string("req-7")));
  ASSERT_EQ(p.tokens.size(), 4u);
  EXPECT_EQ(p.tokens[3].sequence, 1u);
  EXPECT_EQ(p.tokens[3].position, 31);
  EXPECT_EQ(p.tokens[3].id, 9);
}

TEST(WorkerWire, RefusesWhatTheWorkerLacksByName) {
  for (const auto& [bytes, part] :
       {std::pair{plan_message(0, 1), "trees"}, std::pair{plan_message(-1, 3), "3 tokens a plan"}}) {
    const auto said = read_orchestrator_message(bytes);
    ASSERT_TRUE(said.is_ok());
    const auto& message = std::get<PlanMessage>(*said);
    EXPECT_EQ(message.id, PlanId(5));
    ASSERT_FALSE(message.plan.is_ok());
    EXPECT_EQ(message.plan.status().code(), Code::kUnsupported);
    EXPECT_NE(message.plan.status().message().find(part), std::string::npos);
  }
}

TEST(WorkerWire, RefusesASharePastAll) {
  for (const double share : {-0.01, 1.01, std::nan("")}) {
    const auto said = read_orchestrator_message(plan_message(-1, 1, "r", share));
    ASSERT_TRUE(said.is_ok());
    const auto& plan = std::get<PlanMessage>(*said).plan;
    ASSERT_FALSE(plan.is_ok()) << share;
    EXPECT_EQ(plan.status().code(), Code::kInvalidArgument);
    EXPECT_NE(plan.status().message().find("share of low copies"), std::string::npos);
  }
}

TEST(WorkerWire, TakesAnyBytes) {
  EXPECT_FALSE(read_orchestrator_message({}).is_ok());
  auto bytes = plan_message(-1, 1);
  for (size_t n = 0; n < bytes.size(); ++n) (void)read_orchestrator_message(std::span(bytes).first(n)).is_ok();
  for (size_t i = 0; i < bytes.size(); ++i)
    for (const int flip : {0xff, 0x01, 0x80}) {
      auto broken = bytes;
      broken[i] ^= static_cast<std::byte>(flip);
      (void)read_orchestrator_message(broken).is_ok();
    }
  EXPECT_FALSE(read_orchestrator_message(write_heartbeat(1, 2)).is_ok() &&
               !std::holds_alternative<Ignored>(*read_orchestrator_message(write_heartbeat(1, 2))));
  EXPECT_FALSE(read_orchestrator_message(write_failure(PlanId(1), internal_error("x"))).is_ok())
      << "results go the other way";
}

TEST(WorkerWire, WritesWhatItsQueriesSee) {
  Registration r;
  r.top_k = 2, r.kv_sinks = 4, r.kv_window = 1000;
  r.kv_host_blocks = 9;
  r.mixed = true;
  r.state_slots = 12, r.state_interval = 64;
  r.overtaking_tokens_max = 128;
  r.tokenizer = 0x1234567890;
  r.device_slots = 32, r.device_slot_bytes = uint64_t{1} << 33;
  const auto bytes = write_registration(r);
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  ASSERT_TRUE(wire::VerifyWorkerMessageBuffer(verifier));
  const auto* written = wire::GetWorkerMessage(bytes.data())->body_as_RegisterWorker();
  ASSERT_NE(written, nullptr);
  EXPECT_EQ(written->top_k(), 2u);
  EXPECT_EQ(written->kv_sinks(), 4u);
  EXPECT_EQ(written->kv_window(), 1000u);
  EXPECT_EQ(written->kv_host_blocks(), 9u);
  EXPECT_TRUE(written->mixed());
  EXPECT_EQ(std::pair(written->state_slots(), written->state_interval()), std::pair(12u, 64u));
  EXPECT_EQ(written->device_slots(), 32u);
  EXPECT_EQ(written->device_slot_bytes(), uint64_t{1} << 33);
  EXPECT_EQ(written->overtaking_tokens_max(), 128u);
  EXPECT_EQ(written->tokenizer(), 0x1234567890u);
}

TEST(WorkerWire, WritesResultsThatVerify) {
  engine::StepOutcome outcome;
  outcome.plan = PlanId(9);
  outcome.stall_us = 3;
  outcome.nonfinite_sequences = 1;
  outcome.dropped_rows = 8;
  outcome.parked_us = 5, outcome.parks = 2;
  auto& s = outcome.sequences.emplace_back();
  s.id = SequenceId(4);
  s.sampled.push_back({17, true, {-0.5f, {{17, -0.5f}, {2, -1.5f}}}});
  s.activations.push_back({MoeLayerId(1), ExpertId(2), 3});
  s.state_sum = {1.5, -2.25};
  s.copies = {16, 3, 1};
  outcome.layer_copies = {{8, 1, 0}, {8, 2, 1}};
  outcome.sequences.emplace_back().status = not_found("gone");
  const auto bytes = write_result(outcome);
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  ASSERT_TRUE(wire::VerifyWorkerMessageBuffer(verifier));
  const auto* result = wire::GetWorkerMessage(bytes.data())->body_as_StepResult();
  ASSERT_NE(result, nullptr);
  EXPECT_EQ(result->plan(), 9u);
  EXPECT_EQ(result->stall_us(), 3u);
  EXPECT_EQ(result->nonfinite_sequences(), 1u);
  EXPECT_EQ(result->dropped_rows(), 8u);
  EXPECT_EQ(std::pair(result->parked_us(), result->parks()), std::pair(uint64_t{5}, 2u));
  const auto* first = result->sequences()->Get(0);
  EXPECT_EQ(first->sampled()->Get(0)->id(), 17);
  EXPECT_FLOAT_EQ(first->sampled()->Get(0)->score()->best()->Get(1)->logprob(), -1.5f);
  EXPECT_EQ(first->activations()->Get(0)->tokens(), 3u);
  EXPECT_EQ(std::vector<double>(first->state_sum()->begin(), first->state_sum()->end()),
            (std::vector<double>{1.5, -2.25}));
  EXPECT_EQ(std::tuple(first->choices(), first->low_choices(), first->skipped_choices()), std::tuple(16u, 3u, 1u));
  ASSERT_EQ(result->layer_copies()->size(), 2u);
  const auto* second = result->layer_copies()->Get(1);
  EXPECT_EQ(std::tuple(second->choices(), second->low(), second->skipped()), std::tuple(8u, 2u, 1u));
  EXPECT_EQ(result->sequences()->Get(1)->error()->str(), "gone");
  EXPECT_EQ(result->device(), nullptr) << "no memory of its own";
}

TEST(WorkerWire, WritesWhatADeviceHasDone) {
  tier::TierFigures figures;
  figures.layers = {{.hits = 1,
                     .late = 2,
                     .misses = 3,
                     .evictions = 4,
                     .prefetched = 5,
                     .prefetched_used = 6,
                     .prefetched_wasted = 7},
                    {.hits = uint64_t{1} << 40}};
  figures.moved_bytes = uint64_t{1} << 35, figures.wasted_bytes = 11, figures.link_busy_us = 12, figures.resident = 13;
  figures.staged_bytes = 14;
  figures.recent = {.uses = 20, .hits = 14, .lru_hits = 15, .belady_hits = 16};
  engine::StepOutcome outcome;
  outcome.device = {.host_experts = 17, .host_rows = 18, .rewinds = 19, .kv_in_bytes = 20, .kv_out_bytes = 21};
  const auto bytes = write_result(outcome, &figures);
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  ASSERT_TRUE(wire::VerifyWorkerMessageBuffer(verifier));
  const auto* device = wire::GetWorkerMessage(bytes.data())->body_as_StepResult()->device();
  ASSERT_NE(device, nullptr);
  ASSERT_EQ(device->layers()->size(), 2u);
  const auto* first = device->layers()->Get(0);
  EXPECT_EQ(first->hits(), 1u);
  EXPECT_EQ(first->late(), 2u);
  EXPECT_EQ(first->misses(), 3u);
  EXPECT_EQ(first->evictions(), 4u);
  EXPECT_EQ(first->prefetched(), 5u);
  EXPECT_EQ(first->prefetched_used(), 6u);
  EXPECT_EQ(first->prefetched_wasted(), 7u);
  EXPECT_EQ(device->layers()->Get(1)->hits(), UINT32_MAX);
  EXPECT_EQ(device->moved_bytes(), uint64_t{1} << 35);
  EXPECT_EQ(device->wasted_bytes(), 11u);
  EXPECT_EQ(device->link_busy_us(), 12u);
  EXPECT_EQ(device->staged_bytes(), 14u);
  EXPECT_EQ(device->resident(), 13u);
  EXPECT_EQ(device->recent_uses(), 20u);
  EXPECT_EQ(device->recent_hits(), 14u);
  EXPECT_EQ(device->recent_lru_hits(), 15u);
  EXPECT_EQ(device->recent_belady_hits(), 16u);
  EXPECT_EQ(device->host_experts(), 17u);
  EXPECT_EQ(device->host_rows(), 18u);
  EXPECT_EQ(device->kv_in_bytes(), 20u);
  EXPECT_EQ(device->kv_out_bytes(), 21u);
  EXPECT_EQ(device->rewinds(), 19u);
}

std::vector<std::byte> history_message(bool reset, uint32_t capacity, uint32_t entry, size_t cells) {
  FlatBufferBuilder b;
  const std::vector<uint8_t> values(cells, 9);
  const auto written = wire::CreateHistoryEntry(b, true, entry, b.CreateVector(values));
  const auto history = wire::CreateHistory(b, reset, capacity, b.CreateVector(&written, 1));
  wire::FinishWorkerMessageBuffer(b, wire::CreateWorkerMessage(b, wire::WorkerBody::History, history.Union()));
  const auto* begin = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
  return {begin, begin + b.GetSize()};
}

TEST(WorkerWire, AHistoryIsTakenInAsFarAsItFits) {
  activation::ActivationHistory history({2, 4, 1}, 0);
  const auto take_in = [&](const std::vector<std::byte>& message) {
    const auto said = read_orchestrator_message(message);
    return said.is_ok() ? std::get<HistoryUpdate>(*said).apply(history) : said.status();
  };
  EXPECT_EQ(take_in(history_message(false, 4, 0, 8)).code(), Code::kInvalidArgument) << "nothing has been reset yet";
  ASSERT_TRUE(take_in(history_message(true, 4, 0, 8)).is_ok());
  EXPECT_EQ(history.answers.capacity(), 4);
  ASSERT_TRUE(take_in(history_message(false, 4, 1, 8)).is_ok());
  EXPECT_EQ(history.answers.size(), 2);
  EXPECT_EQ(history.answers.cells(1)[7], 9);
  EXPECT_EQ(take_in(history_message(false, 4, 3, 8)).code(), Code::kInvalidArgument) << "an entry beyond the next";
  EXPECT_EQ(take_in(history_message(false, 4, 1, 7)).code(), Code::kInvalidArgument) << "another model's cells";
  EXPECT_EQ(take_in(history_message(false, 4, 4, 8)).code(), Code::kInvalidArgument) << "beyond the capacity";
  EXPECT_EQ(take_in(history_message(true, 1U << 20, 0, 8)).code(), Code::kInvalidArgument) << "absurd";
  EXPECT_EQ(history.answers.size(), 2);
}

}  // namespace
}  // namespace moestro::worker
