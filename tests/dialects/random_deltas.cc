// Answers of chats, for tests that compare whole ones with streams.

#include "orchestrator/api/chat_deltas.h"
#include "tests/dialects/dialect_events.h"

namespace moestro::orchestrator::testing {

namespace {

std::string random_text(std::mt19937& random, size_t most) {
  std::string text(1 + random() % most, 'a');
  for (char& c : text) c = static_cast<char>('a' + random() % 26);
  return text;
}

/// A call of one argument, in pieces; every third breaks off.
void add_call(std::vector<RequestJson>& deltas, int index, std::mt19937& random) {
  deltas.push_back(call_delta(index, "", "id" + std::to_string(index), random_text(random, 3)));
  std::string arguments = R"({"a": ")" + random_text(random, 9) + R"("})";
  if (random() % 3 == 0) arguments.resize(random() % arguments.size());
  for (size_t at = 0, bytes = 0; at < arguments.size(); at += bytes) {
    bytes = 1 + random() % 6;
    deltas.push_back(call_delta(index, arguments.substr(at, bytes)));
  }
}

}  // namespace

std::vector<RequestJson> random_deltas(std::mt19937& random) {
  std::vector<RequestJson> deltas;
  int calls = 0;
  for (size_t n = random() % 3; n > 0; --n) deltas.push_back({{"reasoning_content", random_text(random, 5)}});
  for (size_t n = random() % 8; n > 0; --n) {
    if (random() % 2 == 0) deltas.push_back({{"content", random_text(random, 5)}});
    else add_call(deltas, calls++, random);
  }
  return deltas;
}

std::vector<RequestJson> joined(const std::vector<RequestJson>& deltas) {
  ChatDeltas all;
  for (const RequestJson& delta : deltas) {
    all.add_reasoning(string_at(delta, "reasoning_content"));
    all.add_content(string_at(delta, "content"));
    for (const RequestJson& call : delta.value("tool_calls", RequestJson::array()))
      all.add_call(nlohmann::json::parse(call.dump()));
  }
  std::vector<RequestJson> made;
  for (const nlohmann::json& delta : all.take()) made.push_back(RequestJson::parse(delta.dump()));
  return made;
}

}  // namespace moestro::orchestrator::testing
