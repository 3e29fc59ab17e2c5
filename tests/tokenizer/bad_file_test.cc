// What is not a tokenizer.json, or asks for what is not there, gets one error that names it.
#include <gmock/gmock.h>

#include "orchestrator/tokenizer/tokenizer.h"
#include "tests/tokenizer/tiny_tokenizers.h"

namespace moestro {
namespace {

using ::testing::HasSubstr;
using namespace moestro::testing;  // NOLINT

Status load_error(const Json& json) {
  const auto tokenizer = Tokenizer::from_json(json.dump());
  EXPECT_FALSE(tokenizer.is_ok());
  return tokenizer.status();
}

struct Change {
  const char* pointer;
  const char* value;
  Code code;
  const char* says;
};

TEST(BadFile, EachFaultIsNamed) {
  const Change changes[] = {
      {"/model/type", R"("Odd")", Code::kUnsupported, "the model is of the kind 'Odd'"},
      {"/model/type", R"("Unigram")", Code::kInvalidArgument, "'vocab' must be an array"},
      {"/model/type", R"("WordPiece")", Code::kInvalidArgument, "'continuing_subword_prefix' must be a string"},
      {"/model", R"({"type":"WordLevel","vocab":{}})", Code::kInvalidArgument, "'unk_token' must be a string"},
      {"/model", R"({"vocab":{}})", Code::kUnsupported, "the model is of the kind ''"},
      {"/model", R"({"type":"Unigram","vocab":[["a",0.5],["b"]]})", Code::kInvalidArgument, "entry 1 of 'vocab'"},
      {"/model", R"({"type":"Unigram","vocab":[["a",0.5]],"unk_id":1})", Code::kInvalidArgument, "'unk_id'"},
      {"/model/type", "7", Code::kInvalidArgument, "'type' must be a string"},
      {"/model/dropout", "0.1", Code::kUnsupported, "dropout"},
      {"/model/vocab", "[1]", Code::kInvalidArgument, "'vocab'"},
      {"/model/vocab/a", "2147483647", Code::kInvalidArgument, "the id of 'a'"},
      {"/model/vocab/a", "-1", Code::kInvalidArgument, "the id of 'a'"},
      {"/model/merges", R"(["a zz"])", Code::kInvalidArgument, "merge 0: 'a' + 'zz'"},
      {"/model/merges", R"(["ab"])", Code::kInvalidArgument, "merge 0"},
      {"/model/merges", R"([["a"]])", Code::kInvalidArgument, "merge 0"},
      {"/model/byte_fallback", "1", Code::kInvalidArgument, "'byte_fallback' must be true or false"},
      {"/normalizer", R"({"type":"Precompiled"})", Code::kInvalidArgument,
       "'precompiled_charsmap' must be a string"},
      {"/normalizer", R"({"type":"Precompiled","precompiled_charsmap":"AA*A"})", Code::kInvalidArgument,
       "not base64"},
      {"/normalizer", R"({"type":"Precompiled","precompiled_charsmap":"AAA"})", Code::kInvalidArgument, "not base64"},
      {"/normalizer", R"({"type":"Precompiled","precompiled_charsmap":""})", Code::kInvalidArgument, "cut off"},
      {"/normalizer", R"({"type":"Precompiled","precompiled_charsmap":"BAAAAA=="})", Code::kInvalidArgument,
       "cut off or damaged"},
      {"/normalizer", R"({"type":"Precompiled","precompiled_charsmap":"BAAAAAAAAAD/"})", Code::kInvalidArgument,
       "not UTF-8"},
      {"/normalizer", R"({"type":"Odd"})", Code::kUnsupported, "the normalizer is of the kind 'Odd'"},
      {"/normalizer", R"({"type":"Sequence"})", Code::kInvalidArgument, "'normalizers' must be an array"},
      {"/normalizer", "3", Code::kInvalidArgument, "the normalizer must be an object"},
      {"/pre_tokenizer", R"({"type":"Odd"})", Code::kUnsupported, "'Odd'"},
      {"/pre_tokenizer", R"({"type":"FixedLength","length":0})", Code::kInvalidArgument, "'length'"},
      {"/pre_tokenizer", R"({"individual_digits":true})", Code::kInvalidArgument, "'type' must be a string"},
      {"/pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"})", Code::kInvalidArgument,
       "does not compile"},
      {"/pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"\\X"},"behavior":"Isolated"})", Code::kUnsupported,
       "text segments"},
      {"/pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"a"},"behavior":"Odd"})", Code::kUnsupported, "'Odd'"},
      {"/pre_tokenizer", R"({"type":"Metaspace","replacement":"ab"})", Code::kInvalidArgument, "one character"},
      {"/post_processor", R"({"type":"Odd"})", Code::kUnsupported, "the post-processor is of the kind 'Odd'"},
      {"/post_processor/special_tokens", "{}", Code::kInvalidArgument, "'<s>' has no list of ids"},
      {"/post_processor/special_tokens/<s>/ids", "[99999]", Code::kInvalidArgument, "id 99999"},
      {"/decoder", R"({"type":"CTC"})", Code::kUnsupported, "the decoder is of the kind 'CTC'"},
      {"/added_tokens", "{}", Code::kInvalidArgument, "'added_tokens' must be an array"},
      {"/added_tokens/0/id", "1e9", Code::kInvalidArgument, "added token 0"},
      {"/added_tokens/0/content", "null", Code::kInvalidArgument, "added token 0: 'content'"},
  };
  for (const Change& change : changes) {
    SCOPED_TRACE(std::string(change.pointer) + " = " + change.value);
    Json json = llama2_like({});
    json[Json::json_pointer(change.pointer)] = Json::parse(change.value);
    const Status status = load_error(json);
    EXPECT_EQ(status.code(), change.code) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(change.says));
    EXPECT_THAT(status.message(), ::testing::StartsWith("tokenizer.json: "));
  }
}

TEST(BadFile, AnIdOfTwoTokens) {
  Json json = llama2_like({});
  json["model"]["vocab"]["b"] = json["model"]["vocab"]["a"];
  EXPECT_THAT(load_error(json).message(),
              ::testing::AllOf(HasSubstr("is given to two tokens"), HasSubstr("'a'"), HasSubstr("'b'")));
  json = llama2_like({});
  // Added tokens are numbered behind the vocabulary by its size, which with a gap in its ids may be another's.
  json["model"]["vocab"]["far"] = json["model"]["vocab"].size() + 1;
  json["added_tokens"].push_back(added_token(5, "<|new|>"));
  EXPECT_THAT(load_error(json).message(),
              ::testing::AllOf(HasSubstr("is given to two tokens"), HasSubstr("'<|new|>'")));
  json["added_tokens"].back() = json["added_tokens"][1];
  EXPECT_TRUE(Tokenizer::from_json(json.dump()).is_ok()) << "the same token twice says nothing else";
}

TEST(BadFile, AKeyGivenTwice) {
  EXPECT_THAT(Tokenizer::from_json(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "a": 2}, "merges": []}})")
                  .status()
                  .message(),
              HasSubstr("tokenizer.json: 'a' is given twice"));
}

TEST(BadFile, WhatIsNoTokenizerAtAll) {
  EXPECT_THAT(Tokenizer::from_json("{").status().message(), HasSubstr("not valid JSON"));
  EXPECT_THAT(Tokenizer::from_json("[1]").status().message(), HasSubstr("not a JSON object"));
  EXPECT_THAT(Tokenizer::from_json("{}").status().message(), HasSubstr("no model"));
}

TEST(BadFile, NestingIsBounded) {
  for (const auto& [levels, says] :
       {std::pair(20, "the normalizer nests too deeply"), std::pair(100, "nested too deeply")}) {
    Json part = {{"type", "NFC"}};
    for (int i = 0; i < levels; ++i) part = Json{{"type", "Sequence"}, {"normalizers", Json::array({part})}};
    Json json = gpt2_like({});
    json["normalizer"] = part;
    EXPECT_THAT(load_error(json).message(), HasSubstr(says));
  }
}

TEST(BadFile, ARunawayRegexEndsInAnError) {
  Json json = gpt2_like({});
  json["pre_tokenizer"] = Json::parse(R"({"type":"Split","pattern":{"Regex":"(a+)+$"},"behavior":"Isolated"})");
  const auto tokenizer = Tokenizer::from_json(json.dump());
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  const auto ids = tokenizer->encode(std::string(60, 'a') + "!", false);
  ASSERT_FALSE(ids.is_ok());
  EXPECT_EQ(ids.status().code(), Code::kExhausted);
  EXPECT_THAT(ids.status().message(), HasSubstr("(a+)+$"));
}

TEST(BadFile, ANormalizerMayNotBlowTextUp) {
  Json json = gpt2_like({});
  json["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1 << 16, 'b')}};
  const auto tokenizer = Tokenizer::from_json(json.dump());
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->encode(std::string(1000, 'a'), false).status().code(), Code::kExhausted);
}

}  // namespace
}  // namespace moestro
