// fuzz-deps: moestro_forms nlohmann_json::nlohmann_json
// Answers of each form of tool calls. The first byte is the form, the second the style of reasoning and whether the
// prompt has begun it, the third cuts the rest into pieces: what comes out does not depend on the cuts.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "common/check.h"
#include "orchestrator/forms/find_tool_form.h"
#include "orchestrator/forms/reasoning.h"

namespace api = moestro::orchestrator;
using Json = nlohmann::ordered_json;

namespace {

struct Parts {
  std::string reasoning, content, calls, order;
  bool operator==(const Parts&) const = default;
};

/// One letter for each item: an item that goes on is not another one.
void add_to_order(Parts& parts, char item) {
  if (parts.order.empty() || parts.order.back() != item) parts.order += item;
}

void take_pieces(api::ToolCallParser& parser, Parts& parts, size_t& calls) {
  for (const api::AnswerPiece& piece : parser.take()) {
    if (const auto* text = std::get_if<std::string>(&piece)) {
      parts.content += *text;
      add_to_order(parts, 't');
      continue;
    }
    const auto& delta = std::get<api::ToolCallDelta>(piece);
    add_to_order(parts, delta.index % 2 == 0 ? 'c' : 'C');
    calls += delta.begins;
    MOESTRO_CHECK(delta.index + 1 == calls, "a delta is of the last call");
    MOESTRO_CHECK(delta.begins != delta.name.empty(), "the first delta has the name");
    if (delta.begins) parts.calls += "\n" + delta.id + " " + delta.name + " ";
    parts.calls += delta.arguments;
  }
}

Parts read(const api::ToolForm& form, const std::optional<api::ReasoningStyle>& style, bool open,
           const api::ToolArguments& tools, std::string_view text, size_t piece) {
  Parts parts;
  size_t calls = 0;
  const auto parser = form.parser(tools);
  std::optional<api::ReasoningParser> reasoning;
  if (style) reasoning.emplace(*style, open, true);
  const auto take = [&] {
    for (const api::ReasonedText& said : reasoning ? reasoning->take() : std::vector<api::ReasonedText>{}) {
      if (said.reasoning) {
        parts.reasoning += said.text;
        add_to_order(parts, 'r');
      } else {
        parser->push(said.text);
        take_pieces(*parser, parts, calls);
      }
    }
    take_pieces(*parser, parts, calls);
  };
  for (size_t at = 0; at < text.size(); at += piece) {
    if (reasoning) reasoning->push(text.substr(at, piece));
    else parser->push(text.substr(at, piece));
    take();
  }
  if (reasoning) reasoning->finish();
  take();
  parser->finish();
  take_pieces(*parser, parts, calls);
  MOESTRO_CHECK(parser->calls() == calls, "all calls have begun");
  return parts;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto forms = api::all_tool_forms();
  static const api::ToolArguments tools = api::arguments_of_tools(Json::parse(R"([
    {"function": {"name": "f", "parameters": {"properties": {"s": {"type": "string"}, "n": {"type": "integer"},
      "o": {"type": "object"}, "b": {"type": "boolean"}, "any": {}}}}}, {"function": {"name": "g"}}])"));
  static const char* const kStyles[] = {"", "</think>", "<|channel|>analysis<|message|>",
                                        "</think><response></response>", "◁/think▷"};
  if (size < 3) return 0;
  const api::ToolForm& form = *forms[data[0] % forms.size()];
  const auto style = api::reasoning_style_of(kStyles[data[1] % std::size(kStyles)]);
  const bool open = style && data[1] >= 128;
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  const Parts whole = read(form, style, open, tools, text, std::max<size_t>(text.size(), 1));
  for (const size_t piece : {size_t{1}, size_t{1} + data[2] % 16})
    MOESTRO_CHECK(read(form, style, open, tools, text, piece) == whole, "it depends on how the text is cut");
  return 0;
}
