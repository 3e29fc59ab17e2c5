#pragma once
// A tokenizer of a small tokenizer.json, which must be in order.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "orchestrator/tokenizer/tokenizer.h"

namespace moestro::testing {

inline Tokenizer make(const nlohmann::json& json) {
  auto tokenizer = Tokenizer::from_json(json.dump());
  EXPECT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  return std::move(tokenizer).value();
}

}  // namespace moestro::testing
