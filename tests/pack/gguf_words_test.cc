// The words that text is cut into by the names that GGUF files have for it. What is expected is what Hugging Face
// tokenizers 0.23 makes with the regular expressions of the models' own tokenizers, Kimi's with its &&.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "orchestrator/tokenizer/pre_tokenizer.h"
#include "store/pack/gguf_tokenizer.h"

namespace moestro::store {
namespace {

struct Case {
  const char *pre, *text;
  std::vector<std::string> words;
};

/// What the pre-tokenizer makes of a text; its last step writes bytes as letters.
std::vector<std::string> cut(const nlohmann::json& pre_tokenizer, const std::string& text) {
  const auto parsed = tok::PreTokenizer::parse(&pre_tokenizer);
  if (!parsed) return {parsed.status().message()};
  tok::Pieces pieces{text, {{0, text.size()}}, true};
  if (const Status status = parsed->apply(pieces); !status.is_ok()) return {status.message()};
  std::vector<std::string> words;
  for (const auto& piece : pieces.ranges) words.push_back(pieces.text.substr(piece.begin, piece.end - piece.begin));
  return words;
}

nlohmann::json pre_tokenizer_of(const char* name) {
  GgufMetadata metadata;
  metadata.values = {{"tokenizer.ggml.model", std::string("gpt2")},
                     {"tokenizer.ggml.pre", std::string(name)},
                     {"tokenizer.ggml.tokens", std::vector<std::string>{"a"}},
                     {"tokenizer.ggml.merges", std::vector<std::string>{}}};
  const auto files = gguf_tokenizer_files(metadata);
  EXPECT_TRUE(files) << files.status().message();
  return files ? nlohmann::json::parse(files->front().text)["pre_tokenizer"] : nlohmann::json();
}

TEST(GgufWords, AreThoseOfTheModelsOwnTokenizers) {
  const Case cases[] = {
      {"kimi-k2", "I'VE seen HTMLParser's 12345 files,\n\n  twice!",
       {"I'VE", " seen", " HTMLParser's", " ", "123", "45", " files", ",\n\n", " ", " twice", "!"}},
      {"kimi-k2", "中文和English混排ABC中d 日本語テキスト２０２６年",
       {"中文和", "English", "混排", "ABC", "中", "d", " ", "日本語", "テキスト", "２０２", "６", "年"}},
      {"kimi-k2", "नमस\u094dते द\u0941न\u093fय\u093e é\u0301a ½ Ⅻ '''",
       {"नमस\u094dते", " द\u0941न\u093fय\u093e", " é\u0301a", " ", "½", " ", "Ⅻ", " '''"}},
      {"kimi-k2", "x=1;\r\n\ty+= 2 ♥\ufe0f🫨 ok\u00a0 ",
       {"x", "=", "1", ";\r\n", "\ty", "+=", " ", "2", " ♥\ufe0f🫨", " ok", "\u00a0 "}},
      {"qwen35", "I'VE seen HTMLParser's 12345 files,\n\n  twice!",
       {"I", "'VE", " seen", " HTMLParser", "'s", " ", "1", "2", "3", "4", "5", " files", ",\n\n", " ", " twice",
        "!"}},
      {"qwen35", "中文和English混排ABC中d 日本語テキスト２０２６年",
       {"中文和English混排ABC中d", " 日本語テキスト", "２", "０", "２", "６", "年"}},
      {"qwen35", "नमस\u094dते द\u0941न\u093fय\u093e é\u0301a ½ Ⅻ '''",
       {"नमस\u094dते", " द\u0941न\u093fय\u093e", " é\u0301a", " ", "½", " ", "Ⅻ", " '''"}},
      {"qwen35", "x=1;\r\n\ty+= 2 ♥\ufe0f🫨 ok\u00a0 ",
       {"x", "=", "1", ";\r\n", "\ty", "+=", " ", "2", " ♥", "\ufe0f", "🫨", " ok", "\u00a0 "}},
      {"refact", "I'VE seen HTMLParser's 12345 files,\n\n  twice!",
       {"I", "'", "VE", " seen", " HTMLParser", "'s", " ", "1", "2", "3", "4", "5", " files", ",", "\n\n ", " twice",
        "!"}},
      {"refact", "中文和English混排ABC中d 日本語テキスト２０２６年",
       {"中文和English混排ABC中d", " 日本語テキスト", "２", "０", "２", "６", "年"}},
      {"refact", "नमस\u094dते द\u0941न\u093fय\u093e é\u0301a ½ Ⅻ '''",
       {"नमस", "\u094d", "त", "े", " द", "\u0941", "न", "\u093f", "य", "\u093e", " é", "\u0301", "a", " ", "½", " ",
        "Ⅻ", " '''"}},
      {"refact", "x=1;\r\n\ty+= 2 ♥\ufe0f🫨 ok\u00a0 ",
       {"x", "=", "1", ";", "\r\n", "\t", "y", "+=", " ", "2", " ♥\ufe0f🫨", " ok", "\u00a0 "}}};
  const nlohmann::json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  for (const Case& c : cases) {
    std::vector<std::string> wanted;
    for (const std::string& word : c.words) wanted.push_back(cut(bytes, word).front());
    EXPECT_EQ(cut(pre_tokenizer_of(c.pre), c.text), wanted) << c.pre << ": " << c.text;
  }
}

}  // namespace
}  // namespace moestro::store
