#pragma once
// Small tokenizer.json files for the tests: every part is given as JSON text, the vocabulary grows with the
// merges.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "orchestrator/tokenizer/byte_level.h"

namespace moestro::testing {

using Json = nlohmann::json;
using Merges = std::vector<std::pair<std::string, std::string>>;

inline Json bpe_model(std::vector<std::string> tokens, const Merges& merges) {
  Json vocab = Json::object(), list = Json::array();
  const auto add = [&](const std::string& token) {
    if (!vocab.contains(token)) vocab[token] = vocab.size();
  };
  for (const auto& token : tokens) add(token);
  for (const auto& [left, right] : merges) {
    add(left + right);
    list.push_back(left + " " + right);
  }
  return {{"type", "BPE"}, {"vocab", vocab}, {"merges", list}};
}

inline std::vector<std::string> byte_level_alphabet() {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) {
    std::string token;
    tok::append_byte_level(token, std::string(1, static_cast<char>(b)));
    tokens.push_back(token);
  }
  return tokens;
}

inline std::vector<std::string> fallback_alphabet() {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  for (int b = 0; b < 256; ++b) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", b);
    tokens.emplace_back(name);
  }
  for (char c = 'a'; c <= 'z'; ++c) tokens.emplace_back(1, c);
  tokens.emplace_back("▁");
  return tokens;
}

inline Json added_token(int id, const std::string& content, Json options = Json::object()) {
  Json token = {{"id", id},
                {"content", content},
                {"special", true},
                {"normalized", false},
                {"single_word", false},
                {"lstrip", false},
                {"rstrip", false}};
  token.update(options);
  return token;
}

/// As GPT-2's.
inline Json gpt2_like(const Merges& merges) {
  return {{"model", bpe_model(byte_level_alphabet(), merges)},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
          {"decoder", {{"type", "ByteLevel"}}}};
}

/// As Llama-2's and Mixtral's: a BOS token, "▁" for spaces, bytes for what is not in the vocabulary.
inline Json llama2_like(const Merges& merges) {
  Json json = {{"model", bpe_model(fallback_alphabet(), merges)}};
  json["model"]["unk_token"] = "<unk>";
  json["model"]["fuse_unk"] = true;
  json["model"]["byte_fallback"] = true;
  json["added_tokens"] = {added_token(0, "<unk>"), added_token(1, "<s>"), added_token(2, "</s>")};
  json["normalizer"] = Json::parse(R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},
    {"type":"Replace","pattern":{"String":" "},"content":"▁"}]})");
  json["post_processor"] = Json::parse(R"({"type":"TemplateProcessing",
    "single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
    "special_tokens":{"<s>":{"id":"<s>","ids":[1],"tokens":["<s>"]}}})");
  json["decoder"] =
      Json::parse(R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},
    {"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})");
  return json;
}

}  // namespace moestro::testing
