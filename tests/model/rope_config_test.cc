#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model/configs.h"

namespace moestro::model {
namespace {

using Scaling = RopeSpec::Scaling;
using testing::HasSubstr;

RopeSpec rope_of(const std::string& patch) {
  const auto d = describe("OlmoeForCausalLM", patch);
  EXPECT_TRUE(d) << patch << ": " << d.status().message();
  return d ? d->spec.rope : RopeSpec{};
}

TEST(RopeConfig, BothSpellings) {
  EXPECT_EQ(rope_of("{}").theta, 10000.0);
  EXPECT_EQ(rope_of(R"({"rope_theta": 5e5})").theta, 5e5);
  EXPECT_EQ(rope_of(R"({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2}})").factor, 2.0);
  EXPECT_EQ(rope_of(R"({"rope_parameters": {"rope_type": "default", "rope_theta": 7e4}})").theta, 7e4);
  EXPECT_EQ(rope_of(R"({"rope_theta": null, "rope_parameters": {"rope_theta": 7e4}})").theta, 7e4);
  EXPECT_EQ(rope_of(R"({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 7e4}})").theta, 7e4);
  EXPECT_EQ(rope_of(R"({"rope_scaling": {}, "rope_parameters": {"rope_theta": 7e4}})").theta, 7e4);
  EXPECT_EQ(rope_of(R"({"rope_parameters": {"rope_type": "linear", "type": "dynamic", "factor": 3}})").scaling,
            Scaling::kLinear);
}

TEST(RopeConfig, Yarn) {
  const RopeSpec plain = rope_of(R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}})");
  EXPECT_EQ(plain.scaling, Scaling::kYarn);
  EXPECT_EQ(plain.original_max_position, 256);
  EXPECT_EQ(plain.beta_fast, 32.0);
  EXPECT_FALSE(plain.attention_factor);
  EXPECT_TRUE(plain.truncate);
  const RopeSpec full = rope_of(R"({"rope_parameters": {"rope_type": "yarn", "factor": null, "rope_theta": 1e4,
      "original_max_position_embeddings": 64, "beta_fast": 16, "beta_slow": 0, "mscale": 1.5, "mscale_all_dim": 0,
      "attention_factor": 1.2, "truncate": false}})");
  EXPECT_EQ(full.factor, 4.0);  // 256 / 64
  EXPECT_EQ(full.beta_fast, 16.0);
  EXPECT_EQ(full.beta_slow, 1.0);  // 0 means the default, as in `x or 1`
  EXPECT_EQ(full.mscale, 1.5);
  EXPECT_FALSE(full.mscale_all_dim);
  EXPECT_EQ(full.attention_factor, 1.2);
  EXPECT_FALSE(full.truncate);
  EXPECT_FALSE(rope_of(R"({"rope_scaling": {"rope_type": "yarn", "factor": 2, "truncate": null}})").truncate);
  EXPECT_EQ(rope_of(R"({"original_max_position_embeddings": 64,
      "rope_scaling": {"type": "yarn", "factor": 2, "original_max_position_embeddings": 64}})")
                .original_max_position,
            64);
}

TEST(RopeConfig, Llama3AndDynamic) {
  const RopeSpec llama = rope_of(R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
      "high_freq_factor": 4, "original_max_position_embeddings": 128}})");
  EXPECT_EQ(llama.scaling, Scaling::kLlama3);
  EXPECT_EQ(llama.original_max_position, 128);
  const auto dynamic = describe("OlmoeForCausalLM", R"({"rope_scaling": {"type": "dynamic", "factor": 2}})");
  ASSERT_TRUE(dynamic) << dynamic.status().message();
  EXPECT_EQ(dynamic->spec.rope.original_max_position, 256);
  EXPECT_EQ(dynamic->spec.max_position, 512);  // beyond 256 is what the scaling is for
}

TEST(RopeConfig, Refusals) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"rope_scaling": {"type": "su", "short_factor": [1], "long_factor": [1]}})", "'su'"},
      {R"({"rope_scaling": {"type": "mrope", "mrope_section": [1, 2]}})", "'mrope'"},
      {R"({"rope_scaling": {"type": "linear"}})", "factor is missing"},
      {R"({"rope_scaling": {"type": "yarn", "original_max_position_embeddings": 64}})", "factor is missing"},
      {R"({"original_max_position_embeddings": 32, "rope_scaling": {"type": "yarn", "factor": 2,
           "original_max_position_embeddings": 64}})", "is 32, but 64 by config.json: rope_scaling"},
      {R"({"original_max_position_embeddings": 32, "rope_scaling": {"type": "yarn", "factor": 2}})", "is 32, but 256"},
      {R"({"rope_scaling": {"type": "linear", "factor": 0}})", "factor"},
      {R"({"rope_scaling": {"type": "linear", "factor": "2"}})", "factor"},
      {R"({"rope_scaling": {"type": "dynamic", "factor": 2, "alpha": 1000}})", "'alpha'"},
      {R"({"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 2}})",
       "high_freq_factor"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4, "beta_fast": 1, "beta_slow": 32}})", "beta_fast"},
      {R"({"rope_scaling": {"type": null, "factor": 2}})", "type is null"},
      {R"({"rope_scaling": {"type": "linear", "factor": null}})", "factor is null"},
      {R"({"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": null}})",
       "original_max_position_embeddings is null"},
      {R"({"rope_theta": null, "rope_scaling": {"type": "linear", "factor": 2}})", "rope_theta is null"},
      {R"({"rope_parameters": {"rope_theta": null}})", "rope_theta is null"},
      {R"({"rope_scaling": 3})", "rope_scaling must be an object"},
      {R"({"rope_theta": -1})", "rope_theta"},
      {R"({"rope_parameters": {"partial_rotary_factor": 0.5}})", "partial_rotary_factor"},
      {R"({"rope_parameters": {"full_attention": {"rope_type": "default"}}})", "layer type"},
  };
  for (const auto& [patch, says] : cases) {
    const auto d = describe("OlmoeForCausalLM", patch);
    ASSERT_FALSE(d) << patch;
    EXPECT_THAT(d.status().message(), HasSubstr(says)) << patch;
  }
}

}  // namespace
}  // namespace moestro::model
