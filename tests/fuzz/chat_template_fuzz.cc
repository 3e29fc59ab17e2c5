// fuzz-deps: generated_chats nlohmann_json::nlohmann_json
// Chat templates. An input that starts with "{" is a template as it stands, then after a NUL
// the variables as JSON; else its bytes choose the parts of a template that nearly always parses, and of the variables.
// tests/chat/generated_chats.h says what is checked of each.

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tests/chat/generated_chats.h"

namespace test = moestro::test;
using Json = nlohmann::ordered_json;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0 && data[0] == '{') {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const size_t nul = std::min(text.find('\0'), text.size());
    const Json variables = Json::parse(text.substr(std::min(nul + 1, text.size())), nullptr, false);
    test::render_twice(text.substr(0, nul), variables.is_object() ? variables : test::usual_variables());
  } else {
    const test::GeneratedChat chat = test::generated_chat(data, size);
    test::render_twice(chat.source, chat.variables);
  }
  return 0;
}
