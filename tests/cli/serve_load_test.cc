// What a load is made of: drawn arrivals, traces, events of streams, the figures, padded batches. Against exact values.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "services/cli/bench/serve/arrivals.h"
#include "services/cli/bench/serve/completion_json.h"
#include "services/cli/bench/serve/padded_batches.h"
#include "services/cli/bench/serve/summary.h"
#include "services/cli/bench/serve/trace_file.h"
#include "tests/cli/temp_dir.h"

namespace moestro::test {
namespace {

using namespace moestro::cli;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Arrivals, TheSameSeedIsTheSameLoadEverywhere) {
  const auto load = poisson_arrivals({.rate = 4, .count = 5, .seed = 1});  // the values: Philox 4x32-10 by another hand
  ASSERT_EQ(load.size(), 5u);
  const double due[] = {0, 0.2786840982134549, 0.34973993749439153, 0.7040587877998257, 0.7752348216983059};
  const int prompts[] = {70, 125, 120, 96, 23}, outputs[] = {116, 123, 88, 125, 32};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(load[i].due_s, due[i], 1e-12);
    EXPECT_EQ(load[i].prompt_tokens, prompts[i]);
    EXPECT_EQ(load[i].output_tokens, outputs[i]);
  }
  EXPECT_EQ(prompt_ids({.prompt_tokens = 5}, 3, 1000, 1), "613,683,615,238,181");
  EXPECT_NE(prompt_ids({.prompt_tokens = 5}, 4, 1000, 1), prompt_ids({.prompt_tokens = 5}, 3, 1000, 1));
}

TEST(Arrivals, GapsAreExponentialAndLengthsUniform) {
  constexpr int kCount = 20000;
  const auto load = poisson_arrivals({.rate = 50, .count = kCount, .prompt = {8, 11}, .output = {5, 5}, .seed = 9});
  double sum = 0, squares = 0;
  int of_length[4] = {};
  for (int i = 0; i < kCount; ++i) {
    if (i > 0) {
      const double gap = load[static_cast<size_t>(i)].due_s - load[static_cast<size_t>(i) - 1].due_s;
      EXPECT_GT(gap, 0);
      sum += gap, squares += gap * gap;
    }
    ASSERT_THAT(load[static_cast<size_t>(i)].prompt_tokens, testing::AllOf(testing::Ge(8), testing::Le(11)));
    ++of_length[load[static_cast<size_t>(i)].prompt_tokens - 8];
    EXPECT_EQ(load[static_cast<size_t>(i)].output_tokens, 5);
  }
  const double mean = sum / (kCount - 1), deviation = std::sqrt(squares / (kCount - 1) - mean * mean);
  EXPECT_NEAR(mean, 0.02, 0.0006);       // four standard errors
  EXPECT_NEAR(deviation, 0.02, 0.0009);  // of an exponential: the mean
  for (const int n : of_length) EXPECT_NEAR(n, kCount / 4, 250);
  for (const Arrival& a : poisson_arrivals({.count = 3})) EXPECT_EQ(a.due_s, 0) << "rate inf";
}

TEST(Arrivals, BlocksOfTheSameNameHaveTheSameTokens) {
  const Arrival a{.prompt_tokens = 6, .blocks = {7, 9}, .block_tokens = 2};
  EXPECT_EQ(prompt_ids(a, 3, 1000, 1), "224,791,83,99,181,793");
  const Arrival b{.prompt_tokens = 4, .blocks = {9, 8}, .block_tokens = 2};
  EXPECT_THAT(prompt_ids(b, 5, 1000, 1), testing::StartsWith("83,99,"));
}

TEST(Arrivals, WhatTheContextCannotHoldIsCut) {
  std::vector<Arrival> load = {{.prompt_tokens = 60, .output_tokens = 40},
                               {.prompt_tokens = 90, .output_tokens = 20},
                               {.prompt_tokens = 10, .output_tokens = 500}};
  EXPECT_EQ(cut_to({}, load), 0) << "no limit is known";
  EXPECT_EQ(cut_to({.context = 100}, load), 2);
  EXPECT_EQ(load[0].prompt_tokens, 60);
  EXPECT_EQ(load[1].prompt_tokens, 80);
  EXPECT_EQ(load[1].output_tokens, 20);
  EXPECT_EQ(load[2].prompt_tokens, 10);
  EXPECT_EQ(load[2].output_tokens, 50);
}

// With an encoder they share no context. A target has begun before its first token of output.
TEST(Arrivals, SourceAndTargetAreCutEachForItself) {
  std::vector<Arrival> load = {{.prompt_tokens = 48, .output_tokens = 98},
                               {.prompt_tokens = 49, .output_tokens = 98},
                               {.prompt_tokens = 1, .output_tokens = 99}};
  EXPECT_EQ(cut_to({.context = 100, .source = 48}, load), 2);
  for (const Arrival& a : load) EXPECT_EQ(a.prompt_tokens, &a == &load[2] ? 1 : 48);
  for (const Arrival& a : load) EXPECT_EQ(a.output_tokens, 98);
}

TEST(Trace, AzuresLines) {
  const TempDir dir;
  write_file(dir / "a.csv",
             "\xef\xbb\xbfTIMESTAMP,ContextTokens,GeneratedTokens\r\n2024-02-28 "
             "23:59:59.5000000,480,10\r\n\r\n2024-02-29 00:00:01.7500000,3,0\r\n2024-02-29T00:00:00Z,7,8\r\n");
  const auto load = read_trace(dir / "a.csv", {.speed = 2});
  ASSERT_TRUE(load.is_ok()) << load.status().message();
  ASSERT_EQ(load->size(), 3u);
  EXPECT_THAT((std::vector<double>{(*load)[0].due_s, (*load)[1].due_s, (*load)[2].due_s}), ElementsAre(0, 0.25, 1.125));
  EXPECT_EQ((*load)[0].prompt_tokens, 480);
  EXPECT_EQ((*load)[1].output_tokens, 8) << "in the order of time";
  EXPECT_EQ((*load)[2].output_tokens, 1) << "no answer is shorter than a token";
  const auto short_ones = read_trace(dir / "a.csv", {.lengths = 0.1, .count_max = 1});
  ASSERT_EQ(short_ones->size(), 1u);
  EXPECT_EQ((*short_ones)[0].prompt_tokens, 48);
}

TEST(Trace, MooncakesLines) {
  const TempDir dir;
  write_file(dir / "m.jsonl", R"({"timestamp": 3000, "input_length": 1030, "output_length": 5, "hash_ids": [4, 5, 6]}
{"timestamp": 4500, "input_length": 20, "output_length": 2000})");
  const auto load = read_trace(dir / "m.jsonl", {.lengths = 0.5});
  ASSERT_TRUE(load.is_ok()) << load.status().message();
  ASSERT_EQ(load->size(), 2u);
  EXPECT_EQ((*load)[1].due_s, 1.5);
  EXPECT_THAT((*load)[0].blocks, ElementsAre(4, 5, 6));
  EXPECT_EQ((*load)[0].block_tokens, 256) << "so that shorter prompts share as much";
  EXPECT_EQ((*load)[0].prompt_tokens, 515);
  EXPECT_EQ((*load)[1].output_tokens, 1000);
}

TEST(Trace, BadLinesAreNamed) {
  const TempDir dir;
  const std::string header = "TIMESTAMP,ContextTokens,GeneratedTokens\n", good = "2024-02-28 23:59:59.5,480,10\n",
                    mooncake = R"({"timestamp": 0, "input_length": 1, "output_length": 1})";
  const std::pair<std::string, const char*> cases[] = {
      {"", "no request"},
      {header, "no request"},
      {"time,a,b\n" + good, "line 1 is neither"},
      {header + good + "2024-02-30 00:00:00,1,1\n", "line 3: '2024-02-30 00:00:00' is no time"},
      {header + "2024-02-28 24:00:00,1,1", "line 2"},
      {header + "2024-02-28 23:00:00.,1,1", "line 2"},
      {header + "2024-02-28 23:00:00x5,1,1", "line 2"},
      {header + "now,1,1", "line 2"},
      {header + "2024-02-28 23:00:00,1", "three columns"},
      {header + "2024-02-28 23:00:00,1,1,1", "whole numbers"},
      {header + "2024-02-28 23:00:00,one,1", "whole numbers"},
      {header + "2024-02-28 23:00:00,-1,1", "a length is not within"},
      {header + "2024-02-28 23:00:00,99999999999,1", "a length is not within"},
      {mooncake + "\n{\"timestamp\": 1}", "line 2: numbers timestamp"},
      {mooncake + "\n[1]", "line 2: not a JSON object"},
      {mooncake + "\n{", "line 2: not JSON"},
      {R"({"timestamp": 0, "input_length": -5, "output_length": 1})", "a length"},
      {R"({"timestamp": 0, "input_length": 1e30, "output_length": 1})", "a length"},
      {R"({"timestamp": -1, "input_length": 5, "output_length": 1})", "timestamp"},
      {R"({"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": ["a"]})", "hash_ids"},
      {R"({"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": 3})", "hash_ids"},
  };
  for (const auto& [text, words] : cases) {
    write_file(dir / "t", text);
    const auto load = read_trace(dir / "t", {});
    ASSERT_FALSE(load.is_ok()) << text;
    EXPECT_THAT(load.status().message(), testing::AllOf(HasSubstr(words), HasSubstr((dir / "t").string()))) << text;
  }
  EXPECT_FALSE(read_trace(dir / "nowhere", {}).is_ok());
  EXPECT_FALSE(read_trace(dir.path(), {}).is_ok());
}

TEST(Summary, PercentilesLieBetweenNeighbours) {
  const Distribution d = distribution({4, 1, 3, 2, 5});
  EXPECT_EQ(d.count, 5u);
  EXPECT_EQ(d.mean, 3);
  EXPECT_EQ(d.p50, 3);
  EXPECT_DOUBLE_EQ(d.p90, 4.6);
  EXPECT_DOUBLE_EQ(d.p99, 4.96);
  EXPECT_EQ(d.max, 5);
  EXPECT_EQ(distribution({7}).p99, 7);
  EXPECT_EQ(distribution({}).count, 0u);
}

RequestRecord answered(double due, double sent, double first, std::vector<float> gaps, int32_t got) {
  RequestRecord r{.due_s = due,
                  .sent_s = sent,
                  .first_s = first,
                  .last_s = first,
                  .gaps_s = std::move(gaps),
                  .prompt_tokens = 10,
                  .output_tokens = 3,
                  .got_tokens = got};
  for (const float gap : r.gaps_s) r.last_s += gap;
  r.ending = RequestRecord::Ending::kDone;
  return r;
}

TEST(Summary, FiguresCountedByHand) {
  LoadRun run;
  run.seconds = 4;
  run.requests = {answered(0, 0, 0.5, {0.25f, 0.25f}, 3), answered(1, 1.5, 1.75, {0.5f}, 2)};
  run.requests.push_back({.due_s = 2, .sent_s = 2, .ending = RequestRecord::Ending::kRefused, .retry_after = true});
  run.requests.push_back({.due_s = 2, .sent_s = 2, .ending = RequestRecord::Ending::kRefused});
  run.requests.push_back({.due_s = 2.5, .sent_s = 2.5, .ending = RequestRecord::Ending::kFailed});
  run.requests.push_back({.due_s = 3, .sent_s = 3, .ending = RequestRecord::Ending::kUnderWay});
  run.requests.push_back({.due_s = 4});
  const LoadSummary s = summarise(run, {.ttft_s = 0.4, .tpot_s = 0.5});
  EXPECT_THAT((std::vector<int64_t>{s.sent, s.done, s.refused, s.failed, s.unfinished, s.unsent, s.other_length,
                                    s.refused_without_retry_after}),
              ElementsAre(6, 2, 2, 1, 1, 1, 1, 1));
  EXPECT_EQ(s.offered_rate, 6.0 / 4);
  EXPECT_EQ(s.requests_per_s, 0.5);
  EXPECT_EQ(s.prompt_tokens_per_s, 5);
  EXPECT_EQ(s.output_tokens_per_s, 1.25);
  EXPECT_EQ(s.ttft_s.max, 0.5);
  EXPECT_EQ(s.ttft_s.p50, 0.375);
  EXPECT_EQ(s.tpot_s.max, 0.5);
  EXPECT_EQ(s.tpot_s.p50, 0.375);
  EXPECT_EQ(s.itl_s.count, 3u);
  EXPECT_EQ(s.e2e_s.max, 1.0);
  EXPECT_EQ(s.behind_s.max, 0.5);
  EXPECT_EQ(s.good_per_s, 0.25) << "the first is too slow at its first token";
  EXPECT_EQ(s.good_share, 1.0 / 6);
  // Between 0.6 s and 3 s: tokens at 0.75, 1, 1.75 and 2.25.
  EXPECT_DOUBLE_EQ(s.steady_tokens_per_s, 4 / 2.4);
}

TEST(Summary, BoundsOfGoodput) {
  const auto bounds = parse_goodput("ttft:500ms,tpot:50ms,e2el:2s");
  ASSERT_TRUE(bounds.is_ok()) << bounds.status().message();
  EXPECT_EQ(bounds->ttft_s, 0.5);
  EXPECT_EQ(bounds->tpot_s, 0.05);
  EXPECT_EQ(bounds->e2e_s, 2);
  for (const char* wrong : {"ttft", "ttft:", "ttft:5", "latency:5ms", ":5ms", "ttft:5ms,,tpot:5ms", "ttft:-5ms"})
    EXPECT_FALSE(parse_goodput(wrong).is_ok()) << wrong;
}

TEST(CompletionJson, RequestsAreWhatTheApiTakes) {
  const auto body = nlohmann::json::parse(
      completion_body({.model = "a\"b", .max_tokens = 7, .temperature = 0.5, .seed = 3}, "1,2,3"));
  EXPECT_EQ(
      body,
      nlohmann::json::parse(
          R"({"model":"a\"b","max_tokens":7,"temperature":0.5,"seed":3,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true},"prompt":[1,2,3]})"));
  EXPECT_FALSE(nlohmann::json::parse(completion_body({.model = "m", .stream = false}, "1")).contains("stream"));
}

TEST(CompletionJson, WhatOfAStreamIsAToken) {
  const std::tuple<const char*, bool, bool, int> cases[] = {
      {R"({"choices":[{"text":"a","finish_reason":null}]})", true, false, -1},
      {R"({"choices":[{"text":"","finish_reason":null}]})", true, false, -1},      // its text is held back
      {R"({"choices":[{"text":"","finish_reason":"length"}]})", false, true, -1},  // only says why it ends
      {R"({"choices":[{"text":"a","finish_reason":"length"}]})", true, true, -1},
      {R"({"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]})", false, false, -1},
      {R"({"choices":[{"delta":{"content":"a"}}]})", true, false, -1},
      {R"({"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":9}})", false, false, 9},
      {R"({"choices":[{"text":"a"}],"usage":null})", true, false, -1},
  };
  for (const auto& [event, piece, ended, usage] : cases) {
    const auto chunk = read_stream_chunk(event);
    ASSERT_TRUE(chunk.is_ok()) << event;
    EXPECT_EQ(chunk->piece, piece) << event;
    EXPECT_EQ(chunk->ended, ended) << event;
    EXPECT_EQ(chunk->usage_tokens, usage) << event;
  }
  EXPECT_EQ(read_stream_chunk("[1]").status().code(), Code::kCorrupt);
  EXPECT_EQ(read_stream_chunk("{").status().code(), Code::kCorrupt);
  const auto error = read_stream_chunk(R"({"error":{"message":"no memory"}})");
  EXPECT_EQ(error.status().code(), Code::kUnavailable);
  EXPECT_EQ(error.status().message(), "no memory");
}

TEST(PaddedBatches, SortedAndCut) {
  std::vector<Arrival> load;
  for (const auto& [prompt, output] : {std::pair(9, 1), {3, 50}, {5, 2}, {3, 4}, {7, 7}})
    load.push_back({.prompt_tokens = prompt, .output_tokens = output});
  EXPECT_THAT(padded_batches(load, {0, 1, 2, 3, 4}, 2, false),
              ElementsAre(ElementsAre(1, 3), ElementsAre(2, 4), ElementsAre(0)));
  EXPECT_THAT(padded_batches(load, {0, 1, 2, 3, 4}, 2, true),
              ElementsAre(ElementsAre(2, 3), ElementsAre(0, 4), ElementsAre(1)));
  EXPECT_THAT(padded_batches(load, {4, 2}, 32, false), ElementsAre(ElementsAre(2, 4)));
  EXPECT_TRUE(padded_batches(load, {}, 32, false).empty());
}

}  // namespace
}  // namespace moestro::test
