// `moestro` by its exit codes, its one-line errors, and what it prints.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>

#include "tests/cli/run_moestro.h"
#include "tests/cli/temp_dir.h"
#include "tests/cli/tiny_server.h"

namespace moestro::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

using Words = std::vector<std::string>;

void expect_one_line_error(const Words& arguments, int exit_code, const std::string& word) {
  const Ran ran = run_moestro(arguments);
  const std::string shown = arguments.empty() ? "(nothing)" : testing::PrintToString(arguments);
  EXPECT_EQ(ran.exit_code, exit_code) << shown << ran.err;
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << shown << ran.err;
  EXPECT_THAT(ran.err, HasSubstr(word)) << shown;
  EXPECT_EQ(ran.out, "") << shown;
}

TEST(Program, WrongCommandLinesExitWith2AndOneLine) {
  const std::pair<Words, const char*> cases[] = {
      {{}, "subcommand"},
      {{"nope"}, "nope"},
      {{"up"}, "--model"},
      {{"up", "--model", "a", "--model", "b"}, "--model"},
      {{"up", "--model", "a", "--device", "gpu"}, "--device (workers.device): 'gpu' is no device"},
      {{"up", "--model", "a", "--device", "emulated:vram=1G"}, "link=RATE is missing"},
      {{"up", "--model", "a", "--predict", "gate"}, "is for a device with a memory of its own"},
      {{"up", "--model", "a", "--cache", "lru"}, "is for a device with a memory of its own"},
      {{"up", "--model", "a", "--device", "emulated:vram=1G,link=1G", "--cache", "tarot"}, "--cache (workers.cache)"},
      {{"up", "--model", "a", "--device", "emulated:vram=1G,link=1G", "--predict", "tarot"},
       "--predict (workers.predict)"},
      {{"up", "--model", "a", "--state", "postgres://h/x"},
       "'postgres://h/x' is neither sqlite:PATH nor redis://HOST:PORT/DB"},
      {{"up", "--model", "a", "--dram", "4 gigs"}, "--dram"},
      {{"up", "--model", "a", "--workers", "0"}, "--workers"},
      {{"up", "--model", "a", "--bogus"}, "--bogus"},
      {{"batch"}, "subcommand"},
      {{"batch", "submit"}, "input is required"},
      {{"batch", "run", "in"}, "--output"},
      {{"batch", "run", "in", "-o", "out", "--url", "wss://x"}, "https://HOST:PORT"},
      {{"complete", "x", "--ca-file", "f"}, "--ca-file is for https"},
      {{"complete", "x", "--api-key", "two words"}, "--api-key is no API key"},
      {{"up", "--model", "a", "--tls-cert", "f"}, "--tls-cert without --tls-key"},
      {{"up", "--model", "a", "--tls-key", "f"}, "--tls-key without --tls-cert"},
      {{"batch", "run", "in", "-o", "out", "--concurrency", "0"}, "--concurrency"},
      {{"complete"}, "prompt"},
      {{"complete", "x", "--temperature", "9"}, "--temperature"},
      {{"complete", "x", "--max-tokens", "0"}, "--max-tokens"},
      {{"chat", "--url", "nowhere"}, "'nowhere'"},
      {{"doctor", "--fix"}, "--fix"},
      {{"plan"}, "plan"},
  };
  for (const auto& [arguments, word] : cases) expect_one_line_error(arguments, 2, word);
}

TEST(Program, FailedOperationsExitWith1AndOneLine) {
  TempDir dir;
  write_file(dir / "bad.yaml", "store:\n  drm: 1G\n");
  expect_one_line_error({"up", "--model", (dir / "none").string()}, 1, "no pack at");
  expect_one_line_error({"up", "-c", (dir / "bad.yaml").string()}, 1,
                        "bad.yaml line 2: unknown key 'store.drm'");
  expect_one_line_error({"up", "-c", (dir / "none.yaml").string()}, 1, "none.yaml");
  expect_one_line_error({"config", "-c", (dir / "bad.yaml").string()}, 1, "did you mean 'store.dram'");
  expect_one_line_error({"batch", "run", (dir / "none").string(), "-o", (dir / "out").string()}, 1,
                        "is not there");
}

TEST(Program, HelpAndVersion) {
  const Ran help = run_moestro({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* command : {"up", "batch", "complete", "chat", "doctor", "config", "top", "replay"})
    EXPECT_THAT(help.out, HasSubstr(command));
  EXPECT_THAT(help.out, Not(HasSubstr("\n  plan")));
  EXPECT_THAT(run_moestro({"--version"}).out, testing::StartsWith("moestro 0."));
  for (const char* command : {"up", "batch", "complete", "chat", "doctor", "config"})
    EXPECT_EQ(run_moestro({command, "--help"}).exit_code, 0);
}

TEST(Program, ConfigPrintsWhatItReadsBack) {
  TempDir dir;
  const Ran first = run_moestro({"config"});
  ASSERT_EQ(first.exit_code, 0);
  write_file(dir / "c.yaml", first.out);
  EXPECT_EQ(run_moestro({"config", "-c", (dir / "c.yaml").string()}).out, first.out);
}

TEST(Program, DoctorAsJson) {
  const Ran ran = run_moestro({"doctor", "--json"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const json report = json::parse(ran.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << ran.out;
  EXPECT_GE(report["findings"].size(), 10u);
  for (const json& finding : report["findings"])
    if (finding["verdict"] == "slower") EXPECT_NE(finding["mend"], "") << finding;
}

/// Answers as the orchestrator does.
TinyReply fake_model(const TinyRequest& request) {
  if (request.path == "/v1/models") return {200, R"({"data":[{"id":"demo"}]})"};
  const json body = json::parse(request.body);
  if (body["model"] != "demo") return {404, R"({"error":{"message":"no model of that name"}})"};
  if (!body.value("stream", false)) return {200, json{{"choices", {{{"text", "plain"}}}}}.dump()};
  if (body.value("prompt", "") == "break")
    return {200, "", "", "HTTP/1.1 200 OK\r\n\r\ndata: {\"choices\":[{\"text\":\"half\"}]}\n\n", true};
  const bool is_chat = body.contains("messages");
  const std::string said = is_chat ? body["messages"].back()["content"].get<std::string>() + "/" +
                                         std::to_string(body["messages"].size())
                                   : body["prompt"].get<std::string>() + "/" + body["max_tokens"].dump();
  std::string events;
  for (const std::string& piece : {std::string("you said "), said, std::string("\x1b[31m")})
    events +=
        "data: " +
        json{{"choices", {is_chat ? json{{"delta", {{"content", piece}}}} : json{{"text", piece}}}}}.dump() +
        "\n\n";
  events += "data: [DONE]\n\n";
  return {200, events};
}

TEST(Program, CompleteStreams) {
  TinyServer server(fake_model);
  const Ran ran = run_moestro({"complete", "hi", "--url", server.url(), "--max-tokens", "7"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, "you said hi/7[31m\n");
  EXPECT_EQ(run_moestro({"complete", "-", "--url", server.url()}, "piped").out, "you said piped/128[31m\n");
  EXPECT_EQ(
      json::parse(run_moestro({"complete", "hi", "--json", "--url", server.url()}).out)["choices"][0]["text"],
      "plain");
}

TEST(Program, CompleteFailsWithTheServersWords) {
  TinyServer server(fake_model);
  const Ran refused = run_moestro({"complete", "hi", "--model", "x", "--url", server.url()});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("404: no model of that name"));
  const Ran broken = run_moestro({"complete", "break", "--url", server.url()});
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_THAT(broken.out, HasSubstr("half"));
  EXPECT_THAT(broken.err, HasSubstr("broke off"));
}

TEST(Program, TextThatIsNotUtf8IsNotSent) {
  std::atomic<int> completions = 0;
  TinyServer server([&](const TinyRequest& request) {
    completions += request.path != "/v1/models";
    return fake_model(request);
  });
  expect_one_line_error({"complete", "caf\xe9", "--url", server.url()}, 1, "the prompt is not UTF-8 (byte 3");
  expect_one_line_error({"complete", "a", "--model", "\xff", "--url", server.url()}, 1, "--model is not UTF-8");
  expect_one_line_error({"chat", "--system", "\xff", "--url", server.url()}, 1, "--system is not UTF-8");
  for (const Words& arguments : {Words{"complete", "-", "--url", server.url()}, Words{"chat", "--url", server.url()}}) {
    const Ran ran = run_moestro(arguments, "ok \xc3\x28\n");
    EXPECT_EQ(ran.exit_code, 1);
    EXPECT_THAT(ran.err, HasSubstr("is not UTF-8 (byte 3"));
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  }
  EXPECT_EQ(completions, 0);
}

TEST(Program, ChatKeepsTheConversation) {
  TinyServer server(fake_model);
  const Ran ran = run_moestro({"chat", "--url", server.url()}, "one\n\ntwo\n/reset\nthree\n/exit\nfour\n");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, "you said one/1[31m\nyou said two/3[31m\nyou said three/1[31m\n");
}

TEST(Program, BatchRunPrintsASummary) {
  TempDir dir;
  TinyServer server([](const TinyRequest&) {
    return TinyReply{200, R"({"usage":{"prompt_tokens":2,"completion_tokens":3}})"};
  });
  write_file(dir / "in", R"({"custom_id":"a","url":"/v1/completions","body":{}})"
                         "\n"
                         R"({"custom_id":"b","url":"/v1/completions","body":{}})"
                         "\n");
  const Words command{"batch", "run",       (dir / "in").string(), "-o", (dir / "out").string(),
                      "--url", server.url()};
  const Ran ran = run_moestro(command);
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("2 of 2 lines done, 0 failed; 4 prompt + 6 completion tokens"));
  Words again = command;
  again.push_back("--json");
  const json summary = json::parse(run_moestro(again).out);
  EXPECT_EQ(summary["done_before"], 2);
  EXPECT_EQ(summary["done"], 0);
  EXPECT_EQ(summary["complete"], true);
}

}  // namespace
}  // namespace moestro::test
