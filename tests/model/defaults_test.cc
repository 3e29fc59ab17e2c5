// What config.json leaves out has transformers' default for that family.

#include <gtest/gtest.h>

#include "tests/model/configs.h"

namespace moestro::model {
namespace {

TEST(Defaults, OfDeepseekV3HaveGroupsAndAScale) {
  const auto d = describe("DeepseekV3ForCausalLM", R"({"n_routed_experts": 16})", {"n_group", "topk_group"});
  ASSERT_TRUE(d) << d.status().message();
  const RouterSpec& router = d->spec.moe().router;
  EXPECT_EQ(router.scale, 2.5);
  EXPECT_EQ(router.groups, 8);
  EXPECT_EQ(router.groups_kept, 4);
}

TEST(Defaults, OfOtherGroupedRoutersHaveOneGroup) {
  for (const auto& [family, scale] : {std::pair{"Glm4MoeLiteForCausalLM", 1.8}, {"Glm4MoeForCausalLM", 1.0},
                                      {"Dots1ForCausalLM", 1.0}, {"SolarOpenForCausalLM", 1.0},
                                      {"DeepseekV2ForCausalLM", 1.0}}) {
    const auto d = describe(family, "{}", {"n_group", "topk_group"});
    ASSERT_TRUE(d) << d.status().message();
    const RouterSpec& router = d->spec.moe().router;
    EXPECT_EQ(router.scale, scale) << family;
    EXPECT_EQ(router.groups, 1) << family;
    EXPECT_EQ(router.groups_kept, 1) << family;
  }
}

TEST(Defaults, OfErnieTieTheHeadToTheEmbedding) {
  const auto tied = describe("Ernie4_5_MoeForCausalLM");
  ASSERT_TRUE(tied) << tied.status().message();
  EXPECT_TRUE(tied->spec.tied_embeddings);
  EXPECT_EQ(find(*tied, "head.weight"), nullptr);
  const auto apart = describe("Ernie4_5_MoeForCausalLM", R"({"tie_word_embeddings": false})");
  ASSERT_TRUE(apart) << apart.status().message();
  EXPECT_NE(find(*apart, "head.weight"), nullptr);
}

TEST(Defaults, OfSwitchTransformersHaveTwelveDecoderLayers) {
  const auto decoder_layers = [](const std::string& patch, const std::vector<std::string>& without) {
    const auto d = describe("SwitchTransformersForConditionalGeneration", patch, without);
    EXPECT_TRUE(d) << d.status().message();
    return static_cast<int64_t>(d->spec.layers.size()) - d->spec.encoder_layers();
  };
  EXPECT_EQ(decoder_layers("{}", {"num_decoder_layers"}), 12);
  EXPECT_EQ(decoder_layers(R"({"num_decoder_layers": null})", {}), 4) << "null: as many as the encoder";
}

}  // namespace
}  // namespace moestro::model
