// `moestro bench serve` against servers that answer, refuse, break off or are not there; the padded baseline; what the
// command refuses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>

#include "services/cli/bench/serve/padded_batches.h"
#include "store/pack/packer.h"
#include "tests/cli/run_moestro.h"
#include "tests/cli/temp_dir.h"
#include "tests/cli/tiny_server.h"
#include "tests/support/places.h"

namespace moestro::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// A pack of a fixture (context 256, vocabulary 128), made once.
std::string packed(const TempDir& dir, const std::string& fixture) {
  const auto done = store::pack_checkpoint(source_dir() / "tests/fixtures/models" / fixture, dir / "pack",
                                           {.experts = {DType::kBF16}, .dense = DType::kBF16}, {});
  EXPECT_TRUE(done.is_ok()) << done.status().message();
  return (dir / "pack").string();
}

const std::string& small_pack() {
  static TempDir dir;
  static const std::string pack = packed(dir, "mixtral_llama3");
  return pack;
}

const std::string& pack_with_encoder() {
  static TempDir dir;
  static const std::string pack = packed(dir, "nllb_moe_bias");
  return pack;
}

TinyReply models() { return {.body = R"({"object":"list","data":[{"id":"tiny","meta":{"n_vocab":50,"n_ctx":300}}]})"}; }

TinyReply stream_of(const std::string& events) {
  return {.raw = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: " +
                 std::to_string(events.size()) + "\r\n\r\n" + events};
}

/// As many tokens as `body` asks for, and a usage.
TinyReply answer(const std::string& body) {
  const auto tokens = json::parse(body).at("max_tokens").get<int>();
  std::string events;
  for (int i = 0; i < tokens; ++i) events += "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\n";
  return stream_of(events + "data: {\"choices\":[],\"usage\":{\"completion_tokens\":" + std::to_string(tokens) +
                   "}}\n\ndata: [DONE]\n\n");
}

Ran bench(const std::string& url, std::vector<std::string> arguments) {
  std::vector<std::string> all = {"bench", "serve", "--url", url, "--json"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run_moestro(all);
}

TEST(BenchServe, CountsWhatTheServerAnswered) {
  std::atomic<int> asked{0}, prompt_tokens{0}, output_tokens{0}, ids_max{0};
  TinyServer server([&](const TinyRequest& r) -> TinyReply {
    if (r.path != "/v1/completions") return models();
    const json body = json::parse(r.body);
    ++asked;
    prompt_tokens += static_cast<int>(body["prompt"].size());
    output_tokens += body["max_tokens"].get<int>();
    for (const json& id : body["prompt"])
      if (id.get<int>() > ids_max) ids_max = id.get<int>();
    EXPECT_EQ(body["model"], "tiny");
    EXPECT_EQ(body["ignore_eos"], true);
    return answer(r.body);
  });
  const Ran ran = bench(server.url(), {"--rate", "200,inf", "--count", "20", "--warm-up", "0", "--goodput", "ttft:10s",
                                       "--concurrency", "4", "--seed", "5"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json report = json::parse(ran.out);
  EXPECT_EQ(report["model"], "tiny");
  ASSERT_EQ(report["runs"].size(), 2u);
  int prompts = 0, outputs = 0;
  for (const json& run : report["runs"]) {
    EXPECT_EQ(run["completed"], 20);
    EXPECT_EQ(run["other_length"], 0);
    EXPECT_LE(run["in_flight_max"], 4);
    EXPECT_EQ(run["goodput"]["share"], 1.0);
    EXPECT_GT(run["ttft_ms"]["p50"], 0);
    EXPECT_GE(run["e2e_ms"]["max"], run["ttft_ms"]["max"]);
    EXPECT_NEAR(run["requests_per_s"].get<double>() * run["seconds"].get<double>(), 20, 1e-6);
    prompts += run["prompt_tokens"].get<int>(), outputs += run["output_tokens"].get<int>();
  }
  EXPECT_EQ(asked, 40);
  EXPECT_EQ(prompts, prompt_tokens);
  EXPECT_EQ(outputs, output_tokens);
  EXPECT_LT(ids_max, 50);
  EXPECT_LE(server.connections(), 1 + 3 + 2 * 4) << "connections are used again";
}

/// A Moestro server's status. Each request that was answered adds to the counters.
TinyReply status(int answered, int uptime_s) {
  const json body = {{"uptime_s", uptime_s},
                     {"steps", {{"seconds", 2.0 * answered}, {"stall_seconds", 0.5 * answered}}},
                     {"tiers",
                      {{"dram", {{"hits", 100 + 3 * answered}, {"misses", 7 + answered}}},
                       {"nvme", {{"read_bytes", 5000 + 1000 * answered}}},
                       {"device", {{"hits", 10 * answered}, {"misses", answered}, {"moved_bytes", 64 * answered}}}}}};
  return {.body = body.dump()};
}

TEST(BenchServe, PromptsAreNoLongerThanTheSourcesOfAModelWithAnEncoder) {
  std::atomic<size_t> longest{0};
  TinyServer server([&](const TinyRequest& r) -> TinyReply {
    if (r.path != "/v1/completions")
      return {.body = R"({"data":[{"id":"tiny","meta":{"n_vocab":50,"n_ctx":300,"n_source_max":20}}]})"};
    const size_t length = json::parse(r.body)["prompt"].size();
    if (length > longest) longest = length;
    return answer(r.body);
  });
  const Ran ran = bench(server.url(), {"--count", "5", "--prompt", "21-30", "--output", "290-298"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(longest, 20u);
  const json run = json::parse(ran.out)["runs"][0];
  EXPECT_EQ(run["completed"], 5);
  EXPECT_EQ(run["cut_to_context"], 5);
  EXPECT_GE(run["output_tokens"], 5 * 290) << "a target has the context to itself";
}

TEST(BenchServe, TierFiguresAreThoseOfEachLoadAlone) {
  std::atomic<int> answered{0}, looks{0};
  TinyServer server([&](const TinyRequest& r) -> TinyReply {
    if (r.path == "/v1/moestro/status") return status(answered, 50 + looks++);
    if (r.path != "/v1/completions") return models();
    ++answered;
    return answer(r.body);
  });
  const std::vector<std::string> arguments{"--rate", "inf,inf", "--count", "4", "--warm-up", "2"};
  const Ran ran = bench(server.url(), arguments);
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json report = json::parse(ran.out);
  ASSERT_EQ(report["runs"].size(), 2u);
  for (const json& run : report["runs"])
    EXPECT_EQ(run["tiers"], json::parse(R"({"device": {"hits": 40, "misses": 4, "hit_rate": 0.9090909090909091,
        "moved_bytes": 256}, "dram": {"hits": 12, "misses": 4, "hit_rate": 0.75}, "nvme": {"read_bytes": 4000},
        "step_seconds": 8.0, "stall_seconds": 2.0, "stall_share": 0.25})"))
        << "without the warm-up and the other load";
  const Ran text = run_moestro({"bench", "serve", "--url", server.url(), "--count", "4", "--warm-up", "0"});
  for (const char* line : {"experts on the device         90.9% of 44.0 uses", "copied over the link           256B",
                           "experts in memory             75.0% of 16.0 uses", "read from the drive           4000B",
                           "stalled for experts           25.0% of the workers' steps"})
    EXPECT_THAT(text.out, HasSubstr(line));
}

TEST(BenchServe, NoTierFiguresOfOtherServersAndOfAServerThatWasRestarted) {
  std::atomic<int> looks{0};
  const char* const others[] = {"[]", "no JSON", R"({"tiers": 3, "steps": {}})", R"({"tiers": {}, "steps": {}})"};
  for (const char* other : others) {
    TinyServer server([&](const TinyRequest& r) -> TinyReply {
      if (r.path == "/v1/moestro/status") return {.body = other};
      return r.path == "/v1/completions" ? answer(r.body) : models();
    });
    const Ran ran = bench(server.url(), {"--count", "2", "--warm-up", "0"});
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_EQ(json::parse(ran.out)["runs"][0]["tiers"], nullptr) << other;
  }
  TinyServer restarted([&](const TinyRequest& r) -> TinyReply {
    if (r.path == "/v1/moestro/status") return status(1, 1000 - looks++);
    return r.path == "/v1/completions" ? answer(r.body) : models();
  });
  const Ran ran = bench(restarted.url(), {"--count", "2", "--warm-up", "0"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(json::parse(ran.out)["runs"][0]["tiers"], nullptr);
}

TEST(BenchServe, FailuresAreCountedByKind) {
  std::atomic<int> asked{0};
  TinyServer server([&](const TinyRequest& r) -> TinyReply {
    if (r.path != "/v1/completions") return models();
    switch (asked++ % 7) {
      case 0: return {.status = 429, .body = R"({"error":{"message":"full"}})", .headers = "Retry-After: 1\r\n"};
      case 1: return {.status = 429, .body = "{}"};
      case 2: return {.status = 503, .body = R"({"error":{"message":"away"}})"};
      case 3: return {.status = 0, .hang_up = true};  // without a byte
      case 4:
        return {.raw =
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n26\r\ndata: "
                    "{\"choices\":[{\"text\":\"a\"}]}\n\n....\r\n",
                .hang_up = true};
      case 5: return stream_of("data: {\"error\":{\"message\":\"no memory\"}}\n\ndata: [DONE]\n\n");
      default: return answer(r.body);
    }
  });
  const Ran ran = bench(server.url(), {"--count", "14", "--concurrency", "1", "--warm-up", "0"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err << ran.out;
  const json run = json::parse(ran.out)["runs"][0];
  EXPECT_EQ(run["completed"], 2);
  EXPECT_EQ(run["refused"], 4);
  EXPECT_EQ(run["refused_without_retry_after"], 2);
  EXPECT_EQ(run["failed"], 8);
  const std::pair<const char*, int> kinds[] = {
      {"HTTP 429", 4}, {"HTTP 503", 2}, {"no answer", 2}, {"the stream broke off", 2}, {"error in a stream", 2}};
  for (const auto& [kind, count] : kinds) EXPECT_EQ(run["failures"][kind]["count"], count) << run["failures"];
  EXPECT_EQ(run["failures"].size(), 5u);
  EXPECT_EQ(run["failures"]["HTTP 503"]["example"], "away");
  EXPECT_EQ(run["failures"]["error in a stream"]["example"], "no memory");
}

TEST(BenchServe, ServersThatAreNoGoodAreSaidInOneLine) {
  TinyServer closed(
      [](const TinyRequest&) { return TinyReply{.status = 401, .body = R"({"error":{"message":"no key"}})"}; });
  TinyServer rubbish([](const TinyRequest&) { return TinyReply{.body = "[]"}; });
  TinyServer silent([](const TinyRequest& r) {
    return r.path == "/v1/models" ? TinyReply{.body = R"({"data":[{"id":"m"}]})"} : TinyReply{};
  });
  TinyServer refuses([](const TinyRequest& r) {
    return r.path == "/v1/models" ? models() : TinyReply{.status = 400, .body = R"({"error":{"message":"no ids"}})"};
  });
  const std::tuple<std::string, std::vector<std::string>, const char*> cases[] = {
      {"http://127.0.0.1:1", {}, "127.0.0.1:1"},
      {closed.url(), {}, "no key"},
      {rubbish.url(), {}, "not a list of models"},
      {silent.url(), {}, "--vocab"},
      {silent.url(), {"--model", "other"}, "there is no model 'other', but m"},
      {refuses.url(), {}, "a first request failed: HTTP 400: no ids"},
      {refuses.url(), {"--warm-up", "0", "--count", "2"}, "no request was answered: HTTP 400: no ids"},
  };
  for (const auto& [url, arguments, words] : cases) {
    const Ran ran = bench(url, arguments);
    EXPECT_EQ(ran.exit_code, 1) << words;
    EXPECT_THAT(ran.err, HasSubstr(words));
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  }
}

TEST(BenchServe, CtrlCPrintsWhatThereIs) {
  TinyServer server([&](const TinyRequest& r) -> TinyReply {
    if (r.path != "/v1/completions") return models();
    return answer(r.body);
  });
  const TempDir dir;
  // The second request is due in an hour or so: a load that would not end by itself.
  write_file(dir / "trace.jsonl", R"({"timestamp": 0, "input_length": 5, "output_length": 4}
{"timestamp": 100000000, "input_length": 5, "output_length": 4})");
  Background process(moestro_binary(),
                     {"bench", "serve", "--url", server.url(), "--trace", dir / "trace.jsonl", "--warm-up", "1"},
                     dir.path());
  server.wait_closed(1);  // the question for models and the warm-up are over
  ASSERT_TRUE(process.wait_for("bench serve 1/2")) << process.err();
  process.signal(SIGINT);
  EXPECT_EQ(process.wait_exit(), 0);
  EXPECT_THAT(process.out(), HasSubstr("1 completed"));
  EXPECT_THAT(process.out(), HasSubstr("interrupted, 1 unfinished"));
}

void expect_padded_rows(const std::string& pack) {
  std::vector<cli::Arrival> load;
  for (int i = 0; i < 5; ++i) load.push_back({.prompt_tokens = 4 + i, .output_tokens = 1 + 3 * i});
  const auto server =
      cli::PaddedServer::create({.pack = pack, .store = "", .experts = "", .threads = 1, .batch = 3}, load);
  ASSERT_TRUE(server.is_ok()) << server.status().message();
  const auto run = (*server)->run(load, nullptr, [] { return false; });
  ASSERT_TRUE(run.is_ok()) << run.status().message();
  ASSERT_EQ(run->requests.size(), 5u);
  EXPECT_EQ(run->in_flight_max, 3);
  for (size_t i = 0; i < 5; ++i) {
    const auto& r = run->requests[i];
    EXPECT_EQ(r.ending, cli::RequestRecord::Ending::kDone);
    EXPECT_EQ(r.got_tokens, load[i].output_tokens);
    EXPECT_EQ(r.gaps_s.size(), static_cast<size_t>(r.got_tokens) - 1);
  }
  EXPECT_EQ(run->requests[0].first_s, run->requests[2].first_s) << "of one batch";
  EXPECT_GT(run->requests[3].first_s, run->requests[2].last_s) << "the next begins when the longest is finished";
  const auto stopped = (*server)->run(load, nullptr, [] { return true; });
  EXPECT_TRUE(stopped->interrupted);
}

TEST(BenchServe, PaddedRowsAreComputedToTheEndOfTheirBatch) { expect_padded_rows(small_pack()); }
TEST(BenchServe, PaddedTargetsAreComputedToTheEndOfTheirBatch) { expect_padded_rows(pack_with_encoder()); }

TEST(BenchServe, TheBaselineIsReportedAsALoad) {
  for (const std::string& pack : {small_pack(), pack_with_encoder()}) {
    const Ran ran = run_moestro({"bench", "serve", "--model", pack, "--baseline", "padded", "--count", "6", "--batch",
                                 "4", "--prompt", "4-9", "--output", "2-5", "--threads", "1"});
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    for (const char* part : {"static batches of 4", "6 completed", "time to first token", "requests/s"})
      EXPECT_THAT(ran.out, HasSubstr(part));
  }
}

TEST(BenchServe, ABaselinesSourcesFitInOneStep) {
  const Ran ran = run_moestro({"bench", "serve", "--model", pack_with_encoder(), "--baseline", "padded", "--count", "3",
                               "--prompt", "600-600", "--output", "2", "--threads", "1"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("3 completed"));
  EXPECT_THAT(ran.out, HasSubstr("3 requests were shortened"));
}

TEST(BenchServe, WrongOptionsAreRefusedInOneLine) {
  const std::tuple<std::vector<std::string>, int, const char*> cases[] = {
      {{}, 1, "give --url URL, or --model PACK"},
      {{"--url", "ftp://x"}, 1, "ftp"},
      {{"--model", "/nowhere"}, 1, "/nowhere"},
      {{"--model", "/nowhere", "--table"}, 1, "/nowhere"},
      {{"--model", "p", "--rate", "0"}, 2, "0 is not a rate"},
      {{"--model", "p", "--rate", "1,x"}, 2, "x is not a rate"},
      {{"--model", "p", "--prompt", "9-8"}, 2, "9-8 is not a range"},
      {{"--model", "p", "--output", "0"}, 2, "0 is not a range"},
      {{"--model", "p", "--goodput", "fast"}, 2, "'fast' is no bound"},
      {{"--model", "p", "--count", "0"}, 2, "--count"},
      {{"--model", "p", "--trace", "/nowhere.csv"}, 1, "/nowhere.csv: cannot be read"},
      {{"--model", "p", "--speed", "0"}, 2, "--speed"},
      {{"--model", "p", "--only", "mixed"}, 2, "--only"},
      {{"--url", "http://127.0.0.1:1", "--baseline", "padded"}, 2, "--baseline"},
      {{"--url", "http://127.0.0.1:1", "--table"}, 2, "--"},
      {{"--model", "p", "--table", "--only", "all"}, 2, "--only"},
  };
  for (const auto& [arguments, exit_code, words] : cases) {
    std::vector<std::string> all = {"bench", "serve"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Ran ran = run_moestro(all);
    EXPECT_EQ(ran.exit_code, exit_code) << words << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(words));
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_EQ(ran.out, "") << words;
  }
}

}  // namespace
}  // namespace moestro::test
