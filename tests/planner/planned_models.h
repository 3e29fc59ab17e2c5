#pragma once
// Published shapes for the planner's tests.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/planner/plan.h"

namespace moestro::planner {

inline model::ModelDescription mixtral_8x7b() {
  const nlohmann::json config = {{"architectures", {"MixtralForCausalLM"}},
                                 {"hidden_size", 4096},
                                 {"num_hidden_layers", 32},
                                 {"num_attention_heads", 32},
                                 {"num_key_value_heads", 8},
                                 {"vocab_size", 32000},
                                 {"max_position_embeddings", 32768},
                                 {"intermediate_size", 14336},
                                 {"num_experts_per_tok", 2},
                                 {"num_local_experts", 8},
                                 {"torch_dtype", "bfloat16"}};
  auto model = model::describe_model(config.dump(), "");
  EXPECT_TRUE(model.is_ok()) << model.status().message();
  return std::move(model).value();
}

inline ModelSizes mixtral_sizes(const Precisions& precisions = {.kv = DType::kBF16}) {
  auto sizes = model_sizes(mixtral_8x7b(), precisions);
  EXPECT_TRUE(sizes.is_ok()) << sizes.status().message();
  return std::move(sizes).value();
}

/// Of four layers in each stack, every second one with experts.
inline ModelSizes two_stacks() {
  const nlohmann::json config = {{"architectures", {"SwitchTransformersForConditionalGeneration"}},
                                 {"d_model", 64},
                                 {"d_kv", 32},
                                 {"d_ff", 128},
                                 {"num_heads", 4},
                                 {"num_layers", 4},
                                 {"num_decoder_layers", 4},
                                 {"num_sparse_encoder_layers", 2},
                                 {"num_sparse_decoder_layers", 2},
                                 {"num_experts", 4},
                                 {"vocab_size", 1000}};
  auto model = model::describe_model(config.dump(), "");
  EXPECT_TRUE(model.is_ok()) << model.status().message();
  auto sizes = model_sizes(*model, {});
  EXPECT_TRUE(sizes.is_ok()) << sizes.status().message();
  return std::move(sizes).value();
}

/// A memory of `bytes_per_s` and `operations_per_s`, for bf16 weights.
inline Rates rates_of(double bytes_per_s, double operations_per_s) {
  Rates rates;
  rates.dense = rates.experts = ProductCurve::roofline(2, bytes_per_s, operations_per_s);
  rates.router = ProductCurve::roofline(4, bytes_per_s, operations_per_s);
  rates.kv_bytes_per_s = bytes_per_s, rates.attention_operations_per_s = operations_per_s;
  return rates;
}

}  // namespace moestro::planner
