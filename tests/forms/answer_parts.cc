#include "tests/forms/answer_parts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "orchestrator/forms/reasoning.h"
#include "tests/support/places.h"

namespace moestro::orchestrator::testing {

using nlohmann::json;

std::ostream& operator<<(std::ostream& out, const AnswerParts& parts) {
  return out << "reasoning '" << parts.reasoning << "', content '" << parts.content << "', calls "
             << parts.calls.dump(-1, ' ', false, json::error_handler_t::replace) << ", order "
             << json(parts.order);
}

namespace {

/// An item that goes on is not another one.
void add_to_order(AnswerParts& parts, const std::string& item) {
  if (parts.order.empty() || parts.order.back() != item) parts.order.push_back(item);
}

void add_pieces(ToolCallParser& parser, AnswerParts& parts) {
  for (const AnswerPiece& piece : parser.take()) {
    if (const auto* text = std::get_if<std::string>(&piece)) {
      parts.content += *text;
      add_to_order(parts, "content");
      continue;
    }
    const auto& d = std::get<ToolCallDelta>(piece);
    add_to_order(parts, "call " + std::to_string(d.index));
    if (d.begins) {
      parts.calls.push_back({{"name", d.name}, {"arguments", ""}});
      if (!d.id.empty()) parts.calls.back()["id"] = d.id;
    }
    ASSERT_EQ(d.index + 1, parts.calls.size());
    json& arguments = parts.calls.back()["arguments"];
    arguments = arguments.get<std::string>() + d.arguments;
  }
}

}  // namespace

AnswerParts AnswerReader::read(const std::vector<std::string>& pieces) const {
  AnswerParts parts;
  const auto parser = form.parser(tools);
  std::optional<ReasoningParser> reasoning;
  if (style) reasoning.emplace(*style, open, /*calls=*/true);
  const auto take = [&] {
    for (const ReasonedText& said : reasoning ? reasoning->take() : std::vector<ReasonedText>{}) {
      if (said.reasoning) {
        parts.reasoning += said.text;
        add_to_order(parts, "reasoning");
      } else {
        parser->push(said.text);
        add_pieces(*parser, parts);
      }
    }
    add_pieces(*parser, parts);
  };
  for (const std::string& piece : pieces) {
    if (reasoning) reasoning->push(piece);
    else parser->push(piece);
    take();
  }
  if (reasoning) reasoning->finish();
  take();
  parser->finish();
  add_pieces(*parser, parts);
  EXPECT_EQ(parser->calls(), parts.calls.size());
  return parts;
}

std::string file_of_tree(const std::string& path) {
  std::ifstream in(test::source_dir() / path, std::ios::binary);
  EXPECT_TRUE(in.is_open()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> pieces_of(const std::string& text, size_t bytes) {
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size(); at += bytes) pieces.push_back(text.substr(at, bytes));
  return pieces;
}

}  // namespace moestro::orchestrator::testing
