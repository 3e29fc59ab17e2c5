// `moestro` by its exit codes, its one-line errors, and what it prints.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/cli/run_moestro.h"
#include "tests/cli/temp_dir.h"
#include "tests/cli/tiny_server.h"
#include "tests/cli/unix_socket.h"

namespace moestro::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

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
      {{}, "a command is required: pack, inspect"},
      {{"nope"}, "nope"},
      {{"up"}, "--model"},
      {{"up", "--model", "a", "--model", "b"}, "--model"},
      {{"up", "--model", "a", "--device", "gpu"}, "--device (workers.device): 'gpu' is no device"},
      {{"up", "--model", "a", "--device", "emulated:vram=1G"}, "link=RATE is missing"},
      {{"up", "--model", "a", "--predict", "tarot"}, "--predict (workers.predict)"},
      {{"up", "--model", "a", "--cache", "lru"}, "is for a device with a memory of its own"},
      {{"up", "--model", "a", "--device", "emulated:vram=1G,link=1G", "--cache", "tarot"}, "--cache (workers.cache)"},
      {{"up", "--model", "a", "--device", "emulated:vram=1G,link=1G", "--predict", "tarot"},
       "--predict (workers.predict)"},
      {{"up", "--model", "a", "--state", "postgres://h/x"},
       "'postgres://h/x' is neither sqlite:PATH nor redis://HOST:PORT/DB"},
      {{"up", "--model", "a", "--dram", "4 gigs"}, "--dram"},
      {{"up", "--model", "a", "--workers", "0"}, "--workers"},
      {{"up", "--model", "a", "--bogus"}, "--bogus"},
      {{"batch"}, "a command is required: submit"},
      {{"batch", "submit"}, "IN.jsonl is required"},
      {{"batch", "run", "in"}, "--output"},
      {{"batch", "run", "in", "-o", "out", "--url", "wss://x"}, "https://HOST:PORT"},
      {{"complete", "x", "--ca-file", "f"}, "--ca-file is for https"},
      {{"complete", "x", "--api-key", "two words"}, "--api-key is no API key"},
      {{"up", "--model", "a", "--tls-cert", "f"}, "--tls-cert without --tls-key"},
      {{"up", "--model", "a", "--tls-key", "f"}, "--tls-key without --tls-cert"},
      {{"batch", "run", "in", "-o", "out", "--concurrency", "0"}, "--concurrency"},
      {{"complete"}, "PROMPT is required"},
      {{"complete", "x", "--temperature", "9"}, "--temperature"},
      {{"complete", "x", "--max-tokens", "0"}, "--max-tokens"},
      {{"chat", "--url", "nowhere"}, "'nowhere'"},
      {{"top", "--interval", "soon"}, "--interval: 'soon' is not a duration"},
      {{"doctor", "--fix"}, "--fix"},
      {{"plane"}, "plane"},
      {{"pakc", "x"}, "unknown command 'pakc'; did you mean 'pack'? (see moestro --help)"},
      {{"complete", "x", "--max-token", "5"},
       "'--max-token'; did you mean '--max-tokens'? (see moestro complete --help)"},
      {{"--model", "x", "up"}, "write --model after 'up'"},
      {{"up", "--modle", "x"}, "did you mean '--model'?"},
      {{"up", "packs/demo"}, "unexpected argument 'packs/demo'; did you mean --model packs/demo?"},
      {{"help"}, "unknown command 'help'; did you mean '--help'?"},
  };
  for (const auto& [arguments, word] : cases) expect_one_line_error(arguments, 2, word);
}

TEST(Program, FailedOperationsExitWith1AndOneLine) {
  TempDir dir;
  write_file(dir / "bad.yaml", "store:\n  drm: 1G\n");
  expect_one_line_error({"up", "--model", (dir / "none").string()}, 1, "no pack at");
  expect_one_line_error({"config", "-c", (dir / "bad.yaml").string()}, 1, "did you mean 'store.dram'");
  expect_one_line_error({"pack", "Qwen/No-Such-Model", "-o", (dir / "p").string()}, 1,
                        "hf download Qwen/No-Such-Model --local-dir No-Such-Model && moestro pack");
  expect_one_line_error({"replay", (dir / "none.jsonl").string()}, 1, "moestro up --model PACK --trace routes.jsonl");
  expect_one_line_error({"batch", "run", (dir / "none").string(), "-o", (dir / "out").string()}, 1,
                        "is not there");
}

TEST(Program, AConfigurationThatIsWrongExitsWith2AsInTheOtherPrograms) {
  TempDir dir;
  write_file(dir / "bad.yaml", "store:\n  drm: 1G\n");
  expect_one_line_error({"up", "-c", (dir / "bad.yaml").string()}, 2,
                        "bad.yaml line 2: unknown key 'store.drm'");
  expect_one_line_error({"up", "-c", (dir / "none.yaml").string()}, 2, "none.yaml");
}

TEST(Program, StoreAndTopAskNoRunDirectoryThatAnotherUserCouldHaveMade) {
  namespace fs = std::filesystem;
  const TempDir dir;
  const fs::path home = dir / "moestro";
  fs::create_directories(home / "demo");
  const shm::UniqueFd store = listen_at(home / "demo" / "store.sock");
  fs::permissions(home, fs::perms::all);
  ::setenv("XDG_RUNTIME_DIR", dir.path().c_str(), 1);
  const std::string why = "run directory " + (home / "demo").string();
  expect_one_line_error({"store", "list", "--name", "demo"}, 1, why);
  expect_one_line_error({"store", "add", "more=pack", "--name", "demo"}, 1, why);
  expect_one_line_error({"store", "replace", "more=pack", "--name", "demo"}, 1, why);
  expect_one_line_error({"store", "remove", "more", "--name", "demo"}, 1, why);
  expect_one_line_error({"top", "--once", "--name", "demo"}, 2, "is open to writing by others");
  EXPECT_FALSE(was_asked(store));
  fs::permissions(home, fs::perms::owner_all);
  expect_one_line_error({"store", "list", "--name", "other"}, 1, "no cluster 'other' of this user runs here");
  expect_one_line_error({"top", "--once", "--name", "other"}, 1, "no cluster 'other' of this user runs here");
  ::unsetenv("XDG_RUNTIME_DIR");
}

TEST(Program, HelpAndVersion) {
  const Ran help = run_moestro({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* command :
       {"up", "batch", "complete", "chat", "doctor", "config", "top", "plan", "replay", "timeline"})
    EXPECT_THAT(help.out, HasSubstr(command));
  EXPECT_THAT(run_moestro({"--version"}).out, testing::StartsWith("moestro 0."));
  for (const char* command : {"up", "batch", "complete", "chat", "doctor", "config"})
    EXPECT_EQ(run_moestro({command, "--help"}).exit_code, 0);
}

/// The names of the options in a help page.
std::set<std::string> options_in(const std::string& page) {
  std::set<std::string> names;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find("--");
    if (line.starts_with("  -") && at < 6) names.insert(line.substr(at, line.find_first_of(" ,", at) - at));
  }
  return names;
}

TEST(Program, UpHasAShortHelpAndOneWithEveryFlag) {
  const std::string everyday = run_moestro({"up", "--help"}).out, all = run_moestro({"up", "--help-all"}).out;
  const std::set<std::string> few = options_in(everyday), many = options_in(all);
  EXPECT_LE(few.size(), 20u);
  EXPECT_GE(many.size(), 60u);
  EXPECT_TRUE(std::ranges::includes(many, few));
  for (const char* flag : {"--model", "--device", "--dram", "--http", "--api-keys", "--state"})
    EXPECT_TRUE(few.contains(flag));
  EXPECT_THAT(everyday, HasSubstr("--http ADDRESS"));
  EXPECT_THAT(everyday, HasSubstr("[default: 127.0.0.1:8080]"));
  EXPECT_THAT(everyday, HasSubstr("more options: moestro up --help-all"));
  for (const char* flag : {"--inject-read-faults", "--fault-points", "--poison-freed"}) {
    EXPECT_FALSE(few.contains(flag)) << flag;
    EXPECT_GT(all.find(flag), all.find("\nFault injection, for tests:\n")) << flag;
  }
  EXPECT_THAT(all, HasSubstr("--policy interval|lfru|lfu|lru|random"));
  const std::string man = run_moestro({"--describe-as", "man"}).out, bash = run_moestro({"--describe-as", "bash"}).out;
  for (const std::string& flag : many) EXPECT_THAT(bash, HasSubstr(" " + flag));
  EXPECT_THAT(man, HasSubstr("steps\\-in\\-flight"));
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
  expect_one_line_error({"complete", "caf\xe9", "--url", server.url()}, 2, "prompt: not UTF-8 (byte 3");
  expect_one_line_error({"complete", "a", "--model", "\xff", "--url", server.url()}, 2, "--model: not UTF-8");
  expect_one_line_error({"chat", "--system", "\xff", "--url", server.url()}, 2, "--system: not UTF-8");
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

TEST(Program, BatchRunSaysThatTheServerIsAway) {
  TempDir dir;
  write_file(dir / "in", R"({"custom_id":"a","url":"/v1/completions","body":{}})");
  // Nothing listens on port 1.
  Background run(moestro_binary(), {"batch", "run", dir / "in", "-o", dir / "results", "--url", "http://127.0.0.1:1"},
                 dir.path());
  EXPECT_TRUE(run.wait_for("Connection refused; is the server up? (trying again for up to 5min)")) << run.err();
  run.signal(SIGINT);
  EXPECT_EQ(run.wait_exit(), 1);
}

}  // namespace
}  // namespace moestro::test
