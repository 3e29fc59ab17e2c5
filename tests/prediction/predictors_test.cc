#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/activation/history.h"
#include "common/prediction/make_predictor.h"
#include "common/prediction/odds.h"
#include "tests/prediction/walk.h"

namespace moestro::prediction {
namespace {

constexpr PredictorShape kShape{3, 4, 1};

std::unique_ptr<Predictor> make(const std::string& name, const activation::HistoryView* history = nullptr) {
  auto made = make_predictor(name, {.shape = kShape, .history = history});
  EXPECT_TRUE(made.is_ok()) << made.status().message();
  return std::move(*made);
}

Token same(uint32_t expert) { return {{expert}, {expert}, {expert}}; }

TEST(Odds, FastLogarithmAndBack) {
  for (float x = 1e-4F; x < 4; x *= 1.003F) EXPECT_NEAR(fast_log2(x), std::log2(x), 1e-4) << x;
  for (float p = 0.001F; p < 0.999F; p += 0.007F) EXPECT_NEAR(chance(odds(p)), p, 1e-4);
  EXPECT_LE(odds(1), kOddsMax + 0.01F);
  EXPECT_GE(odds(0), -kOddsMax - 0.01F);
}

TEST(MakePredictor, NamesAndRefusals) {
  for (const std::string& name : predictor_names()) {
    const auto predictor = make(name);
    EXPECT_EQ(predictor->name(), name == "eamc" ? "none" : name);  // without a history there is nothing to match
  }
  EXPECT_EQ(make("correlation+gate")->name(), "correlation+gate");
  for (const char* name : {"", "best", "eamc+", "eamc+best", "gate+gate+gate+gate+gate+gate+gate+gate+gate"}) {
    const auto made = make_predictor(name, {.shape = kShape});
    EXPECT_EQ(made.status().code(), Code::kInvalidArgument) << name;
  }
  EXPECT_EQ(make_predictor("gate", {.shape = kShape, .gate_lookahead = 0}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(make_predictor("none", {.shape = {3, 4, 5}}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(make_predictor("correlation", {.shape = {48, 128, 8}, .correlation_path = 2}).status().code(),
            Code::kInvalidArgument);
}

TEST(NoPredictor, KnowsNothing) {
  decode(*make("none"), kShape, {{1, same(2)}}, [](int32_t, const Forecast& f) {
    for (int32_t layer = 0; layer < kShape.layers; ++layer)
      for (const float p : f.row(layer)) EXPECT_EQ(p, 0);
  });
}

TEST(NextLayerAll, WantsAllOfTheNextLayerAndNothingElse) {
  decode(*make("next-layer-all"), kShape, {{1, same(2)}}, [](int32_t seen_from, const Forecast& f) {
    for (int32_t layer = 0; layer < kShape.layers; ++layer)
      for (const float p : f.row(layer)) EXPECT_EQ(p, layer == (seen_from + 1) % kShape.layers ? 1 : 0);
  });
}

TEST(Popularity, CountsOfAllRequests) {
  const auto predictor = make("popularity");
  for (uint64_t id = 0; id < 100; ++id) decode(*predictor, kShape, {{id, same(id % 4 == 0 ? 1 : 3)}});
  decode(*predictor, kShape, {{200, same(3)}}, [](int32_t layer, const Forecast& f) {
    if (layer >= 0) return;
    EXPECT_NEAR(f.row(1)[1], 0.25, 0.02);
    EXPECT_NEAR(f.row(1)[3], 0.75, 0.02);
    EXPECT_NEAR(f.row(1)[0], 0, 0.02);
  });
  // Of two tokens at least one: 1 - (1 - p)^2.
  decode(*predictor, kShape, {{201, same(3)}, {202, same(3)}}, [](int32_t layer, const Forecast& f) {
    if (layer < 0) EXPECT_NEAR(f.row(2)[3], 1 - 0.25 * 0.25, 0.02);
  });
}

TEST(Popularity, APromptsTokensCountEach) {
  const auto predictor = make("popularity");
  predictor->begin_iteration(std::vector<IterationSequence>{{1, false, 40}});
  const std::vector<activation::ActivationCount> counts{{MoeLayerId(0), ExpertId(0), 30},
                                                        {MoeLayerId(0), ExpertId(2), 10}};
  predictor->routed(0, std::vector<SequenceRoutes>{{1, counts}});
  predictor->end_iteration();
  decode(*predictor, kShape, {{1, same(0)}}, [](int32_t layer, const Forecast& f) {
    if (layer < 0) EXPECT_NEAR(f.row(0)[0], 31.0 / 44, 1e-4);  // the even share stands for four tokens
  });
}

TEST(Request, ItsOwnCountsOutweighTheOthers) {
  const auto predictor = make("request");
  for (uint64_t id = 0; id < 50; ++id) decode(*predictor, kShape, {{id, same(0)}});
  float at_first = 0;
  for (int token = 0; token < 30; ++token)
    decode(*predictor, kShape, {{100, same(2)}}, [&](int32_t layer, const Forecast& f) {
      if (layer >= 0) return;
      if (token == 0) at_first = f.row(1)[0];
      if (token == 29) EXPECT_GT(f.row(1)[2], 0.8);
    });
  EXPECT_GT(at_first, 0.8);
  predictor->end_sequence(100);
  decode(*predictor, kShape, {{100, same(2)}}, [](int32_t layer, const Forecast& f) {
    if (layer < 0) EXPECT_LT(f.row(1)[2], 0.5);
  });
}

TEST(Recent, LearnsWhetherATokenDoesAsTheOneBefore) {
  // Runs of three: after the first of a run and the second the same follows.
  const auto predictor = make("recent");
  double run_on = 0, runs = 0;
  for (uint32_t token = 0; token < 600; ++token) {
    const uint32_t expert = token / 3 % 4;
    decode(*predictor, kShape, {{1, same(expert)}}, [&](int32_t layer, const Forecast& f) {
      if (layer != 0 || token < 500 || token % 3 == 0) return;
      run_on += f.row(1)[expert], ++runs;
      EXPECT_LT(f.row(1)[(expert + 2) % 4], 0.3);
    });
  }
  EXPECT_GT(run_on / runs, 0.9);
}

TEST(Correlation, TheNextLayerFollowsFromThisOne) {
  const auto predictor = make("correlation");
  const auto token = [](uint32_t e) { return Token{{e}, {(e + 1) % 4}, {(e * 3) % 4}}; };
  for (uint32_t i = 0; i < 400; ++i) decode(*predictor, kShape, {{1, token(i * 7 % 4)}});
  for (uint32_t e = 0; e < 4; ++e)
    decode(*predictor, kShape, {{1, token(e)}}, [&](int32_t layer, const Forecast& f) {
      if (layer != 0) return;
      EXPECT_GT(f.row(1)[(e + 1) % 4], 0.9);
      EXPECT_LT(f.row(1)[e], 0.1);
      for (const float p : f.row(2)) EXPECT_EQ(p, 0);  // one layer ahead, no further
    });
}

TEST(Correlation, TheFirstLayerFollowsFromTheLastTokensLast) {
  const auto predictor = make("correlation");
  for (uint32_t i = 0; i < 400; ++i) decode(*predictor, kShape, {{1, same(i % 4)}});
  decode(*predictor, kShape, {{1, same(0)}}, [](int32_t layer, const Forecast& f) {
    if (layer == -1) EXPECT_GT(f.row(0)[0], 0.9);
    if (layer == 2) EXPECT_GT(f.row(0)[1], 0.9);
  });
}

TEST(Correlation, LongerPathsTellApartWhatOneLayerCannot) {
  // The last layer depends on the first; the one between says nothing.
  auto made = make_predictor("correlation", {.shape = kShape, .correlation_path = 2});
  ASSERT_TRUE(made.is_ok());
  const auto token = [](uint32_t i) { return Token{{i % 4}, {i / 4 % 4}, {i % 4}}; };
  for (uint32_t i = 0; i < 800; ++i) decode(**made, kShape, {{1, token(i)}});
  decode(**made, kShape, {{1, token(6)}}, [](int32_t layer, const Forecast& f) {
    if (layer == 1) EXPECT_GT(f.row(2)[2], 0.8);
  });
}

TEST(Correlation, TheLayerBeforeTheLastOneCanBeAskedToo) {
  const auto predictor = make("correlation-2");
  const auto token = [](uint32_t i) { return Token{{i % 4}, {i / 4 % 4}, {i % 4}}; };  // the layer between says nothing
  for (uint32_t i = 0; i < 800; ++i) decode(*predictor, kShape, {{1, token(i)}});
  decode(*predictor, kShape, {{1, token(6)}}, [](int32_t layer, const Forecast& f) {
    if (layer == 1) EXPECT_GT(f.row(2)[2], 0.8);
  });
}

TEST(Signature, TellsApartWhatSinglePairsOfExpertsDoNot) {
  // The last layer is the sum of the first two: neither of them alone says anything of it.
  const auto token = [](uint32_t i) { return Token{{i % 4}, {i / 4 % 4}, {(i + i / 4) % 4}}; };
  const auto predictor = make("signature"), pairs = make("correlation");
  for (uint32_t i = 0; i < 400; ++i)
    decode(*predictor, kShape, {{1, token(i * 7)}}), decode(*pairs, kShape, {{1, token(i * 7)}});
  for (uint32_t i = 0; i < 16; ++i) {
    const auto right = [&](int32_t layer, const Forecast& f) { return layer == 1 ? f.row(2)[(i + i / 4) % 4] : 0.5F; };
    decode(*predictor, kShape, {{1, token(i)}}, [&](int32_t layer, const Forecast& f) {
      if (layer == 1) EXPECT_GT(right(layer, f), 0.9) << i;
    });
    decode(*pairs, kShape, {{1, token(i)}}, [&](int32_t layer, const Forecast& f) {
      if (layer == 1) EXPECT_LT(right(layer, f), 0.6) << i;
    });
  }
}

TEST(Signature, WhatWasNeverSeenIsNotKnownNorAreTooManyExperts) {
  const auto predictor = make("signature");
  decode(*predictor, kShape, {{1, same(1)}}, [](int32_t, const Forecast& f) {
    for (const float p : f.row(2)) EXPECT_EQ(p, 0);
  });
  const PredictorShape many{3, 64, 1};
  auto made = make_predictor("signature", {.shape = many});
  ASSERT_TRUE(made.is_ok());
  for (int i = 0; i < 10; ++i)
    decode(**made, many, {{1, same(1)}}, [](int32_t, const Forecast& f) {
      for (const float p : f.row(2)) EXPECT_EQ(p, 0);
    });
}

TEST(Echo, ATokenThatGoesAnOldWayGoesOnAsTheOldOneDid) {
  const auto predictor = make("echo");
  const auto token = [](uint32_t i) { return Token{{i % 4}, {i / 4 % 4}, {i % 3}}; };
  for (uint32_t i = 0; i < 10; ++i)
    decode(*predictor, kShape, {{1, token(i)}}, [](int32_t, const Forecast& f) {
      for (const float p : f.row(2)) EXPECT_EQ(p, 0);  // every way is new
    });
  decode(*predictor, kShape, {{1, token(7)}}, [](int32_t layer, const Forecast& f) {
    if (layer != 1) return;
    EXPECT_GT(f.row(2)[1], 0.8);
    EXPECT_LT(f.row(2)[0], 0.1);
  });
  // The memory of a sequence is its own, and of its last 256 tokens.
  decode(*predictor, kShape, {{2, token(7)}}, [](int32_t layer, const Forecast& f) {
    if (layer == 1) EXPECT_EQ(f.row(2)[1], 0);
  });
  for (int i = 0; i < 300; ++i) decode(*predictor, kShape, {{1, same(3)}});
  decode(*predictor, kShape, {{1, token(7)}}, [](int32_t layer, const Forecast& f) {
    if (layer == 1) EXPECT_EQ(f.row(2)[1], 0);
  });
}

TEST(Gate, SaysWhatTheNextRoutersSaid) {
  const auto predictor = make("gate");
  EXPECT_EQ(predictor->gate_lookahead(), 2);
  predictor->begin_iteration(std::vector<IterationSequence>{{1, true, 1}});
  const std::vector<float> one{0.1F, 0.2F, 0.3F, 0.4F}, two{0.9F, 0.0F, 0.0F, 0.1F};
  predictor->guessed(0, std::vector<GateGuess>{{1, one}, {2, one}, {3, one}, {2, std::span(two).first(2)}});
  Forecast f(kShape.layers, kShape.experts);
  predictor->forecast(0, f);
  EXPECT_TRUE(std::ranges::equal(f.row(1), one));
  EXPECT_TRUE(std::ranges::equal(f.row(2), one));
  predictor->guessed(1, std::vector<GateGuess>{{2, two}});
  predictor->forecast(1, f);
  EXPECT_TRUE(std::ranges::equal(f.row(2), two));
  for (const float p : f.row(1)) EXPECT_EQ(p, 0);  // its router has spoken
  predictor->end_iteration();
  predictor->begin_iteration(std::vector<IterationSequence>{{1, true, 1}});
  predictor->forecast(-1, f);
  for (const float p : f.row(2)) EXPECT_EQ(p, 0);
}

TEST(Request, BeforeAnythingIsCountedThereIsWhatPastRequestsUsed) {
  const activation::EamcShape shape{kShape.layers, kShape.experts, kShape.top_k};
  activation::ActivationHistory history(shape, 10);
  for (uint32_t e : {1U, 1U, 1U, 2U}) {
    activation::RequestCounts counts(shape);
    for (uint32_t layer = 0; layer < 3; ++layer) counts.answer.add(MoeLayerId(layer), ExpertId(e), 20);
    history.add(counts);
  }
  decode(*make("request", &history.view()), kShape, {{1, same(1)}}, [](int32_t layer, const Forecast& f) {
    if (layer >= 0) return;
    EXPECT_NEAR(f.row(1)[1], 0.75, 0.01);
    EXPECT_NEAR(f.row(1)[2], 0.25, 0.01);
    EXPECT_NEAR(f.row(1)[0], 0, 0.01);
  });
}

TEST(EamcPredictor, ASequenceThatBeginsAsAPastRequestDidGoesOnAsItDid) {
  const activation::EamcShape shape{kShape.layers, kShape.experts, kShape.top_k};
  activation::ActivationHistory history(shape, 10);
  for (uint32_t e = 0; e < 4; ++e) {
    activation::RequestCounts counts(shape);
    for (uint32_t layer = 0; layer < 3; ++layer) counts.answer.add(MoeLayerId(layer), ExpertId((e + layer) % 4), 20);
    history.add(counts);
  }
  const auto predictor = make("eamc", &history.view());
  EXPECT_EQ(predictor->name(), "eamc");
  for (uint32_t e = 0; e < 4; ++e) {
    const Token token{{e}, {(e + 1) % 4}, {(e + 2) % 4}};
    decode(*predictor, kShape, {{e, token}}, [&](int32_t layer, const Forecast& f) {
      if (layer == -1) EXPECT_EQ(f.row(1)[(e + 1) % 4], 0);  // nothing is known of it yet
      if (layer < 0) return;
      EXPECT_GT(f.row(1)[(e + 1) % 4], 0.9);
      EXPECT_GT(f.row(2)[(e + 2) % 4], 0.9);
    });
    // The next token is matched with what the request has used so far, before its first layer.
    decode(*predictor, kShape, {{e, token}}, [&](int32_t layer, const Forecast& f) {
      if (layer == -1) EXPECT_GT(f.row(0)[e], 0.9);
    });
  }
}

}  // namespace
}  // namespace moestro::prediction
