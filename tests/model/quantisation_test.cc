// What a checkpoint says of its quantisation, and where.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model/configs.h"

namespace moestro::model {
namespace {

using testing::HasSubstr;

// transformers writes it at the top, though the text model's settings are a section.
TEST(DescribeModel, QuantisationOfAModelWithAVisionTowerIsSaidAtTheTop) {
  const char* const architecture = "Qwen3_5MoeForConditionalGeneration";
  const std::string outer = R"("quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 64]})";
  const auto d = describe(architecture, "{" + outer + "}");
  ASSERT_TRUE(d) << d.status().message();
  EXPECT_EQ(d->spec.quantisation.method, Quantisation::Method::kFp8);
  EXPECT_EQ(d->spec.quantisation.block_cols, 64);
  const auto inside = [&](const char* value) {
    nlohmann::json text = tiny_config(architecture)["text_config"];
    text["quantization_config"] = nlohmann::json::parse(value);
    return R"("text_config": )" + text.dump();
  };
  const std::string same = inside(R"({"quant_method": "fp8", "weight_block_size": [128, 64]})");
  for (const std::string& config : {same, same + ", " + outer, same + R"(, "quantization_config": null)"}) {
    const auto both = describe(architecture, "{" + config + "}");
    ASSERT_TRUE(both) << both.status().message();
    EXPECT_EQ(both->spec.quantisation, d->spec.quantisation) << config;
  }
  const auto other = describe(architecture, "{" + inside(R"({"quant_method": "fp8"})") + ", " + outer + "}");
  EXPECT_THAT(other.status().message(), HasSubstr("quantization_config differs from that in text_config"));
}

// Version 2 says it; of version 1, GPTQModel writes its name. With sym they are the same.
TEST(DescribeModel, FormsOfGptqsZeroPoints) {
  using Zeros = Quantisation::GptqZeros;
  for (const auto& [more, form] : {std::pair{R"("sym": false)", Zeros::kLess1},
                                   std::pair{R"("meta": {"quantizer": ["optimum:1.23"]})", Zeros::kLess1},
                                   std::pair{R"("meta": {"quantizer": ["gptqmodel:1.9.0"]})", Zeros::kWordLess1},
                                   std::pair{R"("meta": {"quantizer": "gptqmodel:1.9.0"})", Zeros::kWordLess1},
                                   std::pair{R"("checkpoint_format": "gptq_v2", "meta": {"quantizer": "gptqmodel"})",
                                             Zeros::kAsTheyAre},
                                   std::pair{R"("checkpoint_format": "gptq_v2", "sym": true)", Zeros::kMiddle}}) {
    const std::string config = R"({"quantization_config": {"quant_method": "gptq", "bits": 4, )";
    const auto d = describe("MixtralForCausalLM", config + more + "}}");
    ASSERT_TRUE(d) << d.status().message();
    EXPECT_EQ(d->spec.quantisation.gptq_zeros, form) << more;
  }
}

}  // namespace
}  // namespace moestro::model
