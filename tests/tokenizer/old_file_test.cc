// Files from before 2020 have parts without "type", whose fields tell what they are. The files of
// tests/fixtures/tokenizers give the same without it, as in Hugging Face's tokenizers.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/places.h"
#include "tests/tokenizer/make_tokenizer.h"

namespace moestro {
namespace {

using Json = nlohmann::json;

struct OldPart {
  const char* file;
  const char* at;
  const char* kind;
  const char* part = nullptr;  ///< put there first
};

class OldFile : public ::testing::TestWithParam<OldPart> {};

Json read(const std::string& name) {
  std::ifstream in(test::source_dir() / "tests/fixtures/tokenizers" / (name + ".json"));
  return Json::parse(in, nullptr, false);
}

TEST_P(OldFile, NeedsNoType) {
  const OldPart& old = GetParam();
  Json file = read(old.file);
  const Json cases = read(std::string(old.file) + ".cases")["cases"];
  ASSERT_GE(cases.size(), 80u);
  Json& part = file[Json::json_pointer(old.at)];
  if (old.part != nullptr) part = Json::parse(old.part);
  const Tokenizer typed = testing::make(file);
  ASSERT_EQ(part["type"], old.kind);
  part.erase("type");
  const auto untyped = Tokenizer::from_json(file.dump());
  ASSERT_TRUE(untyped.is_ok()) << untyped.status().message();
  for (const Json& c : cases) {
    const auto text = c["text"].get<std::string>();
    const auto ids = typed.encode(text, true), same = untyped->encode(text, true);
    ASSERT_TRUE(ids.is_ok() && same.is_ok()) << text;
    EXPECT_EQ(*ids, *same) << text;
    for (const bool special : {false, true})
      EXPECT_EQ(typed.decode(*ids, special), untyped->decode(*ids, special)) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Parts, OldFile,
    ::testing::Values(
        OldPart{"gpt2", "/model", "BPE"}, OldPart{"llama2", "/model", "BPE"}, OldPart{"bert", "/model", "WordPiece"},
        OldPart{"unigram", "/model", "Unigram"}, OldPart{"unigram_bytes", "/model", "Unigram"},
        OldPart{"llama2", "/normalizer", "Sequence"}, OldPart{"bert", "/normalizer", "BertNormalizer"},
        OldPart{"gpt2", "/normalizer", "Strip", R"({"type": "Strip", "strip_left": true, "strip_right": false})"},
        OldPart{"llama2", "/normalizer/normalizers/0", "Prepend"},
        OldPart{"llama2", "/normalizer/normalizers/1", "Replace"}, OldPart{"bert", "/decoder", "WordPiece"},
        OldPart{"llama2", "/decoder/decoders/3", "Strip"}, OldPart{"llama2", "/decoder/decoders/0", "Replace"},
        OldPart{"bert", "/post_processor", "BertProcessing"},
        OldPart{"bert", "/post_processor", "RobertaProcessing",
                R"({"type": "RobertaProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2], "trim_offsets": true,
                    "add_prefix_space": true})"},
        OldPart{"t5", "/post_processor", "TemplateProcessing"}),
    [](const auto& param) {
      return std::string(param.param.file) + "_" + param.param.kind + "_" + std::to_string(param.index);
    });

}  // namespace
}  // namespace moestro
