#include "store/pack/same_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::store {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Manifest manifest(const char* config, std::vector<CopiedFile> copied = {}) {
  Manifest m;
  m.config_json = config;
  m.copied = std::move(copied);
  return m;
}

constexpr const char* kConfig = R"({"model_type": "qwen2_moe", "num_experts": 8, "torch_dtype": "bfloat16"})";

TEST(SameModel, OtherWeightsAreAnotherVersion) {
  const Manifest before = manifest(kConfig, {{"tokenizer.json", 10, 1}, {"tokenizer_config.json", 3, 4}});
  EXPECT_TRUE(check_same_model(before, before));
  EXPECT_TRUE(check_same_model(
      before, manifest(R"({"num_experts": 8, "model_type": "qwen2_moe", "quantization_config": {"bits": 4}})",
                       {{"tokenizer.json", 10, 1}, {"tokenizer_config.json", 5, 6}})));
  EXPECT_TRUE(check_same_model(manifest(kConfig), before)) << "a pack of before such lists";
}

TEST(SameModel, AnotherShapeOrTokenizerIsAnotherModel) {
  const Manifest before = manifest(kConfig, {{"tokenizer.json", 10, 1}});
  const auto why = [&](const Manifest& now) {
    const Status status = check_same_model(before, now);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(why(manifest(R"({"model_type": "qwen2_moe", "num_experts": 16})")),
              AllOf(HasSubstr("another model: num_experts in its config.json is 16"), HasSubstr("served 8")));
  EXPECT_THAT(why(manifest(R"({"model_type": "qwen2_moe"})")), HasSubstr("num_experts in its config.json is none"));
  EXPECT_THAT(why(manifest(R"({"model_type": "qwen2_moe", "num_experts": 8, "sliding_window": 4})")),
              HasSubstr("sliding_window in its config.json is 4, in that of the model served none"));
  EXPECT_THAT(why(manifest(kConfig, {{"tokenizer.json", 10, 2}})), HasSubstr("tokenizer.json"));
}

TEST(SameModel, TextsThatDifferAreNamed) {
  const CopiedFile tokenizer{"tokenizer.json", 10, 1};
  const Manifest before = manifest(kConfig, {{"config.json", 9, 1}, tokenizer, {"b", 3, 4}});
  EXPECT_EQ(other_texts(before, before), "");
  EXPECT_EQ(other_texts(before, manifest(kConfig)), "") << "a pack of before such lists";
  EXPECT_EQ(other_texts(before, manifest(kConfig, {{"config.json", 9, 2}, tokenizer, {"b", 3, 4}})), "");
  EXPECT_EQ(other_texts(before, manifest(kConfig, {tokenizer, {"b", 3, 5}, {"a", 1, 1}})), "a, b");
  EXPECT_EQ(other_texts(before, manifest(kConfig, {tokenizer})), "b") << "it is gone";
}

}  // namespace
}  // namespace moestro::store
