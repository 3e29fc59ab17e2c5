#include "orchestrator/control/worker_wire.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

#include "common/wire/worker_messages_generated.h"

namespace moestro::orchestrator {
namespace {

using flatbuffers::FlatBufferBuilder;

template <typename T>
std::vector<std::byte> message(FlatBufferBuilder& b, wire::WorkerBody type, flatbuffers::Offset<T> body) {
  wire::FinishWorkerMessageBuffer(b, wire::CreateWorkerMessage(b, type, body.Union()));
  const auto* begin = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
  return {begin, begin + b.GetSize()};
}

std::vector<std::byte> registration(uint32_t blocks, uint32_t block_tokens, uint32_t context, uint32_t tokens,
                                    uint32_t sequences, uint32_t kv_sinks = 0, uint32_t kv_window = 0,
                                    uint32_t kv_host_blocks = 0, uint32_t state_slots = 0,
                                    uint32_t state_interval = 0, uint32_t overtaking_tokens_max = 0) {
  FlatBufferBuilder b;
  const auto name = b.CreateString("w"), model = b.CreateString("m"), device = b.CreateString("cpu");
  return message(
      b, wire::WorkerBody::RegisterWorker,
      wire::CreateRegisterWorker(b, kWorkerProtocol, name, model, 77, device, 0, 1, blocks, block_tokens, 5, context,
                                 tokens, sequences, 0, 0, 0, kv_sinks, kv_window, false, 0, 0, kv_host_blocks, false,
                                 state_slots, state_interval, overtaking_tokens_max));
}

/// A result with everything in it.
std::vector<std::byte> result() {
  FlatBufferBuilder b;
  const auto best = wire::CreateTopLogprob(b, 3, -1.5f);
  const auto score = wire::CreateTokenScore(b, -0.5f, b.CreateVector(&best, 1));
  const auto sampled = wire::CreateSampledToken(b, 9, score);
  const auto prompt_score = wire::CreateTokenScore(b, -2.0f);
  const auto sampled_list = b.CreateVector(&sampled, 1);
  const auto scores = b.CreateVector(&prompt_score, 1);
  const auto why = b.CreateString("gone");
  const std::vector<flatbuffers::Offset<wire::SequenceResult>> sequences = {
      wire::CreateSequenceResult(b, 12, sampled_list, scores),
      wire::CreateSequenceResult(b, 13, 0, 0, 0, static_cast<uint32_t>(Code::kNotFound), why),
      wire::CreateSequenceResult(b, 14, 0, 0, 0, 4000)};
  const auto list = b.CreateVector(sequences);
  return message(b, wire::WorkerBody::StepResult, wire::CreateStepResult(b, 6, list, 100, 20, 3, 4, 5, 0, 0, 6, 7));
}

/// Of a worker whose device has a memory of its own.
std::vector<std::byte> device_result() {
  FlatBufferBuilder b;
  const std::vector<wire::DeviceLayer> layers{{10, 2, 3, 4, 5, 6, 7}, {UINT32_MAX, UINT32_MAX, UINT32_MAX, 0, 0, 0, 0}};
  const auto device =
      wire::CreateDeviceFigures(b, b.CreateVectorOfStructs(layers), 1000, 200, 30, 6, 50, 40, 20, 45, 7, 8, 9, 10, 11,
                                150);
  wire::StepResultBuilder builder(b);
  builder.add_plan(6), builder.add_device(device);
  return message(b, wire::WorkerBody::StepResult, builder.Finish());
}

Plan full_plan() {
  Plan plan;
  plan.id = PlanId{5};
  plan.parent = PlanId{4};
  plan.released = {{SequenceId{3}, 20}, {SequenceId{4}, 0}};
  plan.kv_copies = {{4, 11}, {9, 4}};
  PlannedSequence& s = plan.sequences.emplace_back();
  s.id = SequenceId{12};
  s.first_position = 30;
  s.tokens = {8, 9};
  s.blocks_first = 1;
  s.blocks = {4, 5};
  s.sample = true;
  s.sampling = {0.5f, 3, 0.9f, 0.1f, 77, 2, 4, 1.25f, 0.5f, -0.5f};
  s.bias = std::make_shared<const std::vector<LogitBias>>(1, LogitBias{9, -2.0f});
  s.history_first = 4;
  s.history_prompt = 2;
  s.history = {5, 6, 7};
  s.request_id = "req-7";
  s.allowed = std::make_shared<const TokenMask>(TokenMask{7, 1});
  PlannedSequence& t = plan.sequences.emplace_back();
  t.id = SequenceId{13};
  t.tokens = {kSampledByParent};
  t.ends = {2, 9};
  t.score_targets = {-1};
  t.score_top = 6;
  t.state_sum_from = 17;
  t.state = 3;
  t.states = {{16, 5}, {17, 3}};
  t.memory = {7, 8};
  t.memory_tokens = 20;
  return plan;
}

TEST(OrchestratorWire, WritesAPlanWithAllItSays) {
  const auto bytes = write_plan(full_plan(), "m");
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  ASSERT_TRUE(wire::VerifyWorkerMessageBuffer(verifier));
  const auto* plan = wire::GetWorkerMessage(bytes.data())->body_as_StepPlan();
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->plan(), 5u);
  EXPECT_EQ(plan->parent(), 4u);
  EXPECT_EQ(plan->model()->str(), "m");
  EXPECT_EQ(std::vector<uint64_t>(plan->released()->begin(), plan->released()->end()), (std::vector<uint64_t>{3, 4}));
  EXPECT_EQ(std::vector<uint32_t>(plan->released_lengths()->begin(), plan->released_lengths()->end()),
            (std::vector<uint32_t>{20, 0}));
  ASSERT_EQ(plan->kv_copies()->size(), 2u);
  EXPECT_EQ(std::pair(plan->kv_copies()->Get(1)->from(), plan->kv_copies()->Get(1)->to()), std::pair(9u, 4u));
  ASSERT_EQ(plan->micro_batches()->size(), 1u);
  const auto* batch = plan->micro_batches()->Get(0);
  ASSERT_EQ(batch->sequences()->size(), 2u);
  const auto* s = batch->sequences()->Get(0);
  EXPECT_EQ(s->id(), 12u);
  EXPECT_EQ(s->blocks_first(), 1u);
  EXPECT_EQ(std::vector<uint32_t>(s->blocks()->begin(), s->blocks()->end()), (std::vector<uint32_t>{4, 5}));
  EXPECT_TRUE(s->sample());
  ASSERT_NE(s->sampling(), nullptr);
  EXPECT_FLOAT_EQ(s->sampling()->temperature(), 0.5f);
  EXPECT_EQ(s->sampling()->top_k(), 3);
  EXPECT_FLOAT_EQ(s->sampling()->top_p(), 0.9f);
  EXPECT_FLOAT_EQ(s->sampling()->min_p(), 0.1f);
  EXPECT_EQ(s->sampling()->seed(), 77u);
  EXPECT_EQ(s->sampling()->choice(), 2u);
  EXPECT_EQ(s->sampling()->logprobs(), 4);
  EXPECT_EQ(s->sampling()->tokens_max(), 1u);
  EXPECT_EQ(std::tuple(s->sampling()->repetition_penalty(), s->sampling()->presence_penalty(),
                       s->sampling()->frequency_penalty()),
            std::tuple(1.25f, 0.5f, -0.5f));
  ASSERT_EQ(s->sampling()->bias_ids()->size(), 1u);
  EXPECT_EQ(std::pair(s->sampling()->bias_ids()->Get(0), s->sampling()->biases()->Get(0)), std::pair(9, -2.0f));
  EXPECT_EQ(std::vector<uint32_t>(s->sampling()->allowed()->begin(), s->sampling()->allowed()->end()),
            (std::vector<uint32_t>{7, 1}));
  EXPECT_EQ(std::vector<int32_t>(s->history()->begin(), s->history()->end()), (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(std::pair(s->history_first(), s->history_prompt()), std::pair(4u, 2u));
  EXPECT_EQ(s->request()->str(), "req-7");
  EXPECT_EQ(s->state_sum_from(), -1) << "not wanted";
  const auto* t = batch->sequences()->Get(1);
  EXPECT_EQ(t->state_sum_from(), 17);
  EXPECT_EQ(t->state(), 3u);
  ASSERT_EQ(t->states()->size(), 2u);
  EXPECT_EQ(std::pair(t->states()->Get(0)->tokens(), t->states()->Get(0)->slot()), std::pair(16u, 5u));
  EXPECT_FALSE(t->source());
  EXPECT_EQ(std::vector<uint32_t>(t->memory()->begin(), t->memory()->end()), (std::vector<uint32_t>{7, 8}));
  EXPECT_EQ(t->memory_tokens(), 20u);
  EXPECT_FALSE(t->sample());
  EXPECT_EQ(t->sampling(), nullptr);
  ASSERT_EQ(t->score_targets()->size(), 1u);
  EXPECT_EQ(t->score_targets()->Get(0), -1);
  EXPECT_EQ(t->score_top(), 6);
  EXPECT_EQ(std::vector<int32_t>(t->ends()->begin(), t->ends()->end()), (std::vector<int32_t>{2, 9}));
  const std::vector<std::array<int32_t, 4>> rows = {{0, 30, 8, -1}, {0, 31, 9, -1}, {1, 0, -1, -1}};
  ASSERT_EQ(batch->tokens()->size(), rows.size());
  for (uint32_t i = 0; i < rows.size(); ++i) {
    const auto* token = batch->tokens()->Get(i);
    EXPECT_EQ((std::array<int32_t, 4>{static_cast<int32_t>(token->sequence()), token->position(), token->id(),
                                      token->parent()}),
              rows[i]);
  }
}

TEST(OrchestratorWire, ReadsARegistration) {
  const auto said = read_worker_message(registration(8, 16, 64, 32, 4));
  ASSERT_TRUE(said.is_ok()) << said.status().message();
  const auto& r = std::get<Registration>(*said);
  EXPECT_EQ(r.protocol, kWorkerProtocol);
  EXPECT_EQ(r.name, "w");
  EXPECT_EQ(r.model, "m");
  EXPECT_EQ(r.device, "cpu");
  EXPECT_EQ(r.pack_identity, 77u);
  EXPECT_EQ(r.kv_epoch, 5u);
  EXPECT_EQ(r.limits.kv_blocks, 8u);
  EXPECT_EQ(r.limits.kv_block_tokens, 16u);
  EXPECT_EQ(r.limits.context_max, 64u);
  EXPECT_EQ(r.limits.step_tokens_max, 32u);
  EXPECT_EQ(r.limits.step_sequences_max, 4u);
}

TEST(OrchestratorWire, ReadsWhatAWorkersQueriesSee) {
  const auto all = read_worker_message(registration(8, 16, 64, 32, 4));
  ASSERT_TRUE(all.is_ok());
  EXPECT_EQ(std::get<Registration>(*all).limits.kv_window, 0u) << "a worker that says nothing sees all";
  const auto some = read_worker_message(registration(8, 16, 64, 32, 4, 3, 40));
  ASSERT_TRUE(some.is_ok());
  EXPECT_EQ(std::get<Registration>(*some).limits.kv_sinks, 3u);
  EXPECT_EQ(std::get<Registration>(*some).limits.kv_window, 40u);
  for (const auto& [sinks, window] : {std::pair{1u, 0u}, std::pair{UINT32_MAX, 40u}, std::pair{0u, UINT32_MAX}}) {
    const auto said = read_worker_message(registration(8, 16, 64, 32, 4, sinks, window));
    ASSERT_FALSE(said.is_ok()) << sinks << " " << window;
    EXPECT_NE(said.status().message().find("sinks"), std::string::npos);
  }
}

TEST(OrchestratorWire, ReadsWhatAWorkerHasRoomForInHostMemory) {
  const auto none = read_worker_message(registration(8, 16, 64, 32, 4)),
             some = read_worker_message(registration(8, 16, 64, 32, 4, 0, 0, 100));
  ASSERT_TRUE(none.is_ok() && some.is_ok());
  EXPECT_EQ(std::get<Registration>(*none).limits.kv_host_blocks, 0u) << "a worker that says nothing has none";
  EXPECT_EQ(std::get<Registration>(*some).limits.kv_host_blocks, 100u);
  EXPECT_FALSE(read_worker_message(registration(8, 16, 64, 32, 4, 0, 40, 100)).is_ok()) << "beside a window";
  EXPECT_FALSE(read_worker_message(registration(8, 16, 64, 32, 4, 0, 0, UINT32_MAX)).is_ok());
}

TEST(OrchestratorWire, ReadsHowManyStatesAWorkerHasRoomFor) {
  const auto some = read_worker_message(registration(8, 16, 64, 32, 4, 0, 0, 0, 7, 48));
  ASSERT_TRUE(some.is_ok()) << some.status().message();
  EXPECT_EQ(std::get<Registration>(*some).limits.state_slots, 7u);
  EXPECT_EQ(std::get<Registration>(*some).limits.state_interval, 48u);
  for (const auto& [window, slots, interval] :
       {std::tuple{0u, 7u, 0u}, {0u, 0u, 48u}, {0u, 7u, 40u}, {40u, 7u, 48u}, {0u, UINT32_MAX, 48u}})
    EXPECT_FALSE(read_worker_message(registration(8, 16, 64, 32, 4, 0, window, 0, slots, interval)).is_ok())
        << window << " " << slots << " " << interval;
}

TEST(OrchestratorWire, ReadsHowManyTokensOvertake) {
  const auto some = read_worker_message(registration(8, 16, 64, 32, 4, 0, 0, 0, 0, 0, 24));
  ASSERT_TRUE(some.is_ok()) << some.status().message();
  EXPECT_EQ(std::get<Registration>(*some).limits.overtaking_tokens_max, 24u);
  EXPECT_FALSE(read_worker_message(registration(8, 16, 64, 32, 4, 0, 0, 0, 0, 0, 33)).is_ok()) << "more than a step";
}

TEST(OrchestratorWire, SaysThatAPlanOvertakes) {
  for (const bool overtakes : {false, true}) {
    const auto bytes = write_plan({.id = PlanId{5}, .parent = {}, .sequences = {}, .released = {},
                                   .overtakes = overtakes}, "m");
    EXPECT_EQ(wire::GetWorkerMessage(bytes.data())->body_as_StepPlan()->overtakes(), overtakes);
  }
}

TEST(OrchestratorWire, RefusesRegistrationsWithoutLimits) {
  for (int zero = 0; zero < 5; ++zero)
    for (const uint32_t bad : {0u, (1u << 30) + 1, UINT32_MAX}) {
      std::array<uint32_t, 5> n = {8, 16, 64, 32, 4};
      n[static_cast<size_t>(zero)] = bad;
      const auto said = read_worker_message(registration(n[0], n[1], n[2], n[3], n[4]));
      ASSERT_FALSE(said.is_ok()) << zero << " " << bad;
      EXPECT_EQ(said.status().code(), Code::kInvalidArgument);
      EXPECT_NE(said.status().message().find("limit"), std::string::npos);
    }
}

TEST(OrchestratorWire, ReadsAResult) {
  const auto said = read_worker_message(result());
  ASSERT_TRUE(said.is_ok()) << said.status().message();
  const auto& report = std::get<StepReport>(*said);
  EXPECT_EQ(report.outcome.plan, PlanId{6});
  EXPECT_TRUE(report.outcome.error.is_ok());
  EXPECT_EQ(report.step_us, 100u);
  EXPECT_EQ(report.stall_us, 20u);
  EXPECT_EQ(report.expert_hits, 3u);
  EXPECT_EQ(report.expert_misses, 4u);
  EXPECT_EQ(report.fetched_bytes, 5u);
  EXPECT_EQ(report.nonfinite_sequences, 6u);
  EXPECT_EQ(report.dropped_rows, 7u);
  ASSERT_EQ(report.outcome.sequences.size(), 3u);
  const SequenceOutcome& s = report.outcome.sequences[0];
  EXPECT_EQ(s.id, SequenceId{12});
  ASSERT_EQ(s.sampled.size(), 1u);
  EXPECT_EQ(s.sampled[0].id, 9);
  EXPECT_FLOAT_EQ(s.sampled[0].score.logprob, -0.5f);
  ASSERT_EQ(s.sampled[0].score.best.size(), 1u);
  EXPECT_EQ(s.sampled[0].score.best[0].id, 3);
  ASSERT_EQ(s.scores.size(), 1u);
  EXPECT_FLOAT_EQ(s.scores[0].logprob, -2.0f);
  EXPECT_EQ(report.outcome.sequences[1].error.code(), Code::kNotFound);
  EXPECT_EQ(report.outcome.sequences[1].error.message(), "gone");
  EXPECT_EQ(report.outcome.sequences[2].error.code(), Code::kInternal) << "a code of a newer worker";
  EXPECT_FALSE(report.outcome.sequences[2].error.message().empty());
}

TEST(OrchestratorWire, RefusesWhatItItselfSends) {
  for (const auto& bytes : {write_registered(WorkerId{1}), write_refused(not_found("x")), write_drain(),
                            write_release(full_plan().released), write_plan(full_plan(), "m")}) {
    const auto said = read_worker_message(bytes);
    ASSERT_FALSE(said.is_ok());
    EXPECT_EQ(said.status().code(), Code::kInvalidArgument);
  }
}

TEST(OrchestratorWire, RefusesTruncatedMessages) {
  for (const auto& bytes : {registration(8, 16, 64, 32, 4), result(), device_result()})
    for (size_t n = 0; n < bytes.size() / 2; ++n)
      EXPECT_FALSE(read_worker_message(std::span(bytes).first(n)).is_ok()) << n;
}

TEST(OrchestratorWire, RefusesRandomBytes) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> bytes(random() % 200);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    EXPECT_FALSE(read_worker_message(bytes).is_ok());
    if (bytes.size() < 8) continue;
    std::memcpy(bytes.data() + 4, "MWK1", 4);  // past the first check
    (void)read_worker_message(bytes).is_ok();
  }
}

TEST(OrchestratorWire, TakesBrokenMessages) {
  for (const auto& bytes : {registration(8, 16, 64, 32, 4), result(), device_result()})
    for (size_t i = 0; i < bytes.size(); ++i)
      for (const int flip : {0xff, 0x01, 0x80}) {
        auto broken = bytes;
        broken[i] ^= static_cast<std::byte>(flip);
        const auto said = read_worker_message(broken);
        if (said.is_ok()) continue;
        EXPECT_EQ(said.status().code(), Code::kInvalidArgument);
      }
}

TEST(OrchestratorWire, RefusesAMessageWithoutItsBody) {
  for (const auto type :
       {wire::WorkerBody::RegisterWorker, wire::WorkerBody::Heartbeat, wire::WorkerBody::StepResult,
        wire::WorkerBody::Leaving}) {
    flatbuffers::FlatBufferBuilder b;
    wire::FinishWorkerMessageBuffer(b, wire::CreateWorkerMessage(b, type, 0));
    const auto* begin = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
    EXPECT_FALSE(read_worker_message({begin, b.GetSize()}).is_ok());
  }
}

TEST(ControlWire, AStateSumComesWithItsSequence) {
  const std::vector<double> values{1.5, -0.25, 1e300};
  FlatBufferBuilder b;
  const auto sum = b.CreateVector(values);
  const auto sequence = wire::CreateSequenceResult(b, 12, 0, 0, 0, 0, 0, sum);
  const auto said = read_worker_message(
      message(b, wire::WorkerBody::StepResult, wire::CreateStepResult(b, 6, b.CreateVector(&sequence, 1))));
  ASSERT_TRUE(said.is_ok());
  EXPECT_EQ(std::get<StepReport>(*said).outcome.sequences[0].state_sum, values);
}

TEST(ControlWire, CountsComeWithTheirSequence) {
  FlatBufferBuilder b;
  const auto count = wire::CreateActivationCount(b, 3, 17, 40);
  const auto counts = b.CreateVector(&count, 1);
  const auto sequence = wire::CreateSequenceResult(b, 12, 0, 0, counts);
  const auto said = read_worker_message(
      message(b, wire::WorkerBody::StepResult, wire::CreateStepResult(b, 6, b.CreateVector(&sequence, 1))));
  ASSERT_TRUE(said.is_ok());
  const std::vector<activation::ActivationCount> expected{{MoeLayerId(3), ExpertId(17), 40}};
  EXPECT_EQ(std::get<StepReport>(*said).outcome.sequences[0].activations, expected);
}

TEST(ControlWire, ALargeHistoryGoesInSeveralMessagesAndOnlyTheFirstResets) {
  const activation::EamcShape shape{64, 1024, 8};
  activation::ActivationHistory history(shape, 80);
  const std::vector<uint8_t> cells(shape.cells(), 1);
  for (int32_t i = 0; i < 70; ++i)
    ASSERT_TRUE(
        (i % 7 == 0 ? history.prompts : history.answers).set(i % 7 == 0 ? i / 7 : i - i / 7 - 1, cells).is_ok());
  const auto messages = write_history(history);
  EXPECT_EQ(messages.size(), 2U);
  size_t entries = 0;
  for (const auto& m : messages) {
    EXPECT_LT(m.size(), size_t{5} << 20);
    const auto* read = wire::GetWorkerMessage(m.data())->body_as_History();
    EXPECT_EQ(read->reset(), &m == &messages.front());
    EXPECT_EQ(read->capacity(), 80U);
    entries += read->entries()->size();
  }
  EXPECT_EQ(entries, 70U);
  EXPECT_EQ(write_history(activation::ActivationHistory(shape, 2)).size(), 1U) << "an empty one still resets";
}

TEST(ControlWire, ARegistrationOfAbsurdExpertsIsRefused) {
  FlatBufferBuilder b;
  const auto name = b.CreateString("w");
  const auto body = wire::CreateRegisterWorker(b, kWorkerProtocol, name, name, 77, name, 0, 1, 8, 16, 5, 64, 64, 4,
                                               1U << 20, 1U << 20, 1);
  EXPECT_EQ(read_worker_message(message(b, wire::WorkerBody::RegisterWorker, body)).status().code(),
            Code::kInvalidArgument);
}

std::vector<std::byte> device_registration(uint32_t slots, uint64_t slot_bytes, uint32_t layers) {
  FlatBufferBuilder b;
  const auto name = b.CreateString("w");
  return message(b, wire::WorkerBody::RegisterWorker,
                 wire::CreateRegisterWorker(b, kWorkerProtocol, name, name, 77, name, 0, 1, 8, 16, 5, 64, 64, 4, layers,
                                            8, 2, 0, 0, false, slots, slot_bytes));
}

TEST(ControlWire, ARegistrationSaysWhatItsDeviceHolds) {
  const auto said = read_worker_message(device_registration(7, 1024, 3));
  ASSERT_TRUE(said.is_ok()) << said.status().message();
  EXPECT_EQ(std::get<Registration>(*said).device_slots, 7U);
  EXPECT_EQ(std::get<Registration>(*said).device_slot_bytes, 1024U);
  EXPECT_EQ(std::get<Registration>(*read_worker_message(registration(8, 16, 64, 32, 4))).device_slots, 0U)
      << "a worker that says nothing has none";
}

TEST(ControlWire, ADeviceThatCannotBeIsRefused) {
  for (const auto& bytes : {device_registration(7, 0, 3), device_registration(7, uint64_t{1} << 40, 3),
                            device_registration(UINT32_MAX, 1024, 3), device_registration(7, 1024, 0)}) {
    const auto said = read_worker_message(bytes);
    ASSERT_FALSE(said.is_ok());
    EXPECT_EQ(said.status().code(), Code::kInvalidArgument);
    EXPECT_NE(said.status().message().find("slots"), std::string::npos);
  }
}

TEST(ControlWire, AResultSaysWhatItsDeviceDid) {
  const auto said = read_worker_message(device_result());
  ASSERT_TRUE(said.is_ok()) << said.status().message();
  const auto& d = std::get<StepReport>(*said).device;
  ASSERT_TRUE(d.has_value());
  ASSERT_EQ(d->layers.size(), 2U);
  const DeviceUse& first = d->layers[0];
  EXPECT_EQ(std::tuple(first.hits, first.late, first.misses), std::tuple(10U, 2U, 5U)) << "what was late is missed too";
  EXPECT_EQ(std::tuple(first.evictions, first.prefetched, first.prefetched_used, first.prefetched_wasted),
            std::tuple(4U, 5U, 6U, 7U));
  EXPECT_EQ(d->layers[1].misses, 2 * uint64_t{UINT32_MAX}) << "a sum of what a peer says does not run over";
  EXPECT_EQ(std::tuple(d->moved_bytes, d->wasted_bytes, d->staged_bytes, d->link_busy_us, d->resident),
            std::tuple(1000U, 200U, 150U, 30U, 6U));
  EXPECT_EQ(std::tuple(d->recent.uses, d->recent.hits, d->recent.lru_hits, d->recent.belady_hits),
            std::tuple(50U, 40U, 20U, 45U));
  EXPECT_EQ(std::tuple(d->work.host_experts, d->work.host_rows, d->work.rewinds), std::tuple(7U, 8U, 9U));
  EXPECT_EQ(std::tuple(d->work.kv_in_bytes, d->work.kv_out_bytes), std::tuple(10U, 11U));
  EXPECT_FALSE(std::get<StepReport>(*read_worker_message(result())).device.has_value());
}

TEST(ControlWire, AResultSaysByLayerWhichCopiesServed) {
  FlatBufferBuilder b;
  const std::vector<wire::LayerCopies> layers{{8, 1, 0}, {8, 2, 1}};
  const auto copies = b.CreateVectorOfStructs(layers);
  wire::StepResultBuilder builder(b);
  builder.add_plan(6), builder.add_layer_copies(copies);
  const auto said = read_worker_message(message(b, wire::WorkerBody::StepResult, builder.Finish()));
  ASSERT_TRUE(said.is_ok());
  EXPECT_EQ(std::get<StepReport>(*said).layer_copies, (std::vector<CopyCounts>{{8, 1, 0}, {8, 2, 1}}));
  EXPECT_TRUE(std::get<StepReport>(*read_worker_message(result())).layer_copies.empty());
}

TEST(ControlWire, DeviceFiguresWithoutLayersAreRead) {
  FlatBufferBuilder b;
  const auto device = wire::CreateDeviceFigures(b);
  wire::StepResultBuilder builder(b);
  builder.add_plan(6), builder.add_device(device);
  const auto said = read_worker_message(message(b, wire::WorkerBody::StepResult, builder.Finish()));
  ASSERT_TRUE(said.is_ok());
  ASSERT_TRUE(std::get<StepReport>(*said).device.has_value());
  EXPECT_TRUE(std::get<StepReport>(*said).device->layers.empty());
}

}  // namespace
}  // namespace moestro::orchestrator
