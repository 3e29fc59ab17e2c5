// Traces as files: what is read, and which line is refused for what.

#include "common/tier/routes.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace moestro::tier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char* const kHead = R"({"format":"moestro-routes","version":1,"model":"m","layers":2,"experts":4,"top_k":2})"
                          "\n";

class RoutesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() / ("moestro-routes-" + std::to_string(::getpid()));
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::filesystem::path write(const std::string& text, const std::string& name = "t.jsonl") {
    std::ofstream(dir_ / name, std::ios::binary) << text;
    return dir_ / name;
  }
  std::string refusal(const std::string& text) {
    const auto routes = read_routes(write(text));
    return routes.is_ok() ? "read" : routes.status().message();
  }
  std::filesystem::path dir_;
};

TEST_F(RoutesTest, TokensOfRequestsInTheirOrder) {
  const auto routes =
      read_routes(write(std::string(kHead) + R"({"r":7,"ph":"prefill","t":0,"e":[[0,1],[2,3]],"w":[[0.5,0.5],[1,0]]})"
                                             "\n"
                                             R"({"r":9,"ph":"decode","t":4,"e":[[1,2],[3,0]]})"
                                             "\n\n"
                                             R"({"r":7,"ph":"decode","t":1,"e":[[3,1],[0,1]]})"));
  ASSERT_TRUE(routes.is_ok()) << routes.status().message();
  EXPECT_EQ(routes->model, "m");
  ASSERT_EQ(routes->requests.size(), 2u);
  EXPECT_EQ(routes->requests[0].id, 7u);
  ASSERT_EQ(routes->requests[0].tokens.size(), 2u);
  EXPECT_FALSE(routes->requests[0].tokens[0].decode);
  EXPECT_THAT(routes->chosen(routes->requests[0].tokens[1], 0), ElementsAre(3, 1));
  EXPECT_THAT(routes->chosen(routes->requests[1].tokens[0], 1), ElementsAre(3, 0));
}

TEST_F(RoutesTest, ATokenMayBeNamed) {
  const auto routes = read_routes(write(std::string(kHead) + R"({"r":7,"ph":"prefill","t":0,"x":31,"e":[[0,1],[2,3]]})"
                                                             "\n"
                                                             R"({"r":7,"ph":"decode","t":1,"e":[[1,2],[3,0]]})"));
  ASSERT_TRUE(routes.is_ok()) << routes.status().message();
  EXPECT_EQ(routes->requests[0].tokens[0].token, 31);
  EXPECT_EQ(routes->requests[0].tokens[1].token, -1);
  EXPECT_THAT(refusal(std::string(kHead) + R"({"r":7,"ph":"prefill","t":0,"x":-1,"e":[[0,1],[2,3]]})" "\n\n"),
              HasSubstr("\"x\""));
}

TEST_F(RoutesTest, ALastLineCutShortIsLeftOut) {
  const auto routes = read_routes(write(std::string(kHead) + R"({"r":7,"ph":"decode","t":0,"e":[[0,1],[2,3]]})"
                                                             "\n"
                                                             R"({"r":7,"ph":"dec)"));
  ASSERT_TRUE(routes.is_ok());
  EXPECT_EQ(routes->requests[0].tokens.size(), 1u);
}

TEST_F(RoutesTest, BadLinesAreNamed) {
  const std::string head = kHead, good = R"({"r":7,"ph":"decode","t":0,"e":[[0,1],[2,3]]})" "\n";
  EXPECT_THAT(refusal(""), HasSubstr("empty"));
  EXPECT_THAT(refusal(head), HasSubstr("no tokens"));
  EXPECT_THAT(refusal("no json\n" + good), HasSubstr("line 1: not a JSON object"));
  EXPECT_THAT(refusal(R"({"format":"x"})" "\n"), HasSubstr("line 1: not a routing trace"));
  EXPECT_THAT(refusal(R"({"format":"moestro-routes","version":2})" "\n"), HasSubstr("version 2"));
  EXPECT_THAT(refusal(R"({"format":"moestro-routes","version":1,"layers":0})" "\n"), HasSubstr("\"layers\""));
  EXPECT_THAT(refusal(R"({"format":"moestro-routes","version":1,"layers":2,"experts":2,"top_k":3})"
                      "\n"),
              HasSubstr("\"top_k\""));
  EXPECT_THAT(refusal(head + good + "nonsense\n" + good), HasSubstr("line 3: not a JSON object"));
  EXPECT_THAT(refusal(head + good + "[]\n"), HasSubstr("line 3: not a JSON object"));
  EXPECT_THAT(refusal(head + R"({"ph":"decode","t":0,"e":[[0,1],[2,3]]})" "\n"), HasSubstr("line 2: \"r\" is missing"));
  EXPECT_THAT(refusal(head + R"({"r":7,"ph":"other","t":0,"e":[[0,1],[2,3]]})" "\n"), HasSubstr("\"ph\""));
  EXPECT_THAT(refusal(head + R"({"r":7,"ph":"decode","t":-1,"e":[[0,1],[2,3]]})" "\n"), HasSubstr("\"t\""));
  EXPECT_THAT(refusal(head + R"({"r":18446744073709551615,"ph":"decode","t":1,"e":[[0,1],[2,3]]})"
                             "\n"),
              HasSubstr("\"r\""));
  EXPECT_THAT(refusal(head + R"({"r":7,"ph":"decode","t":0,"e":[[0,1]]})"
                             "\n"),
              HasSubstr("line 2: \"e\" has 1 layers, the first line says 2"));
  EXPECT_THAT(refusal(head + R"({"r":7,"ph":"decode","t":0,"e":[[0,1],[2]]})"
                             "\n"),
              HasSubstr("layer 1: not 2 experts"));
  EXPECT_THAT(refusal(head + R"({"r":7,"ph":"decode","t":0,"e":[[0,4],[2,3]]})"
                             "\n"),
              HasSubstr("layer 0: an expert that is not from 0 to 3"));
  EXPECT_THAT(refusal(head + R"({"r":7,"ph":"decode","t":0,"e":[[0,-1],[2,3]]})"
                             "\n"),
              HasSubstr("layer 0: an expert"));
  EXPECT_THAT(refusal(head + R"({"r":7,"ph":"decode","t":0,"e":3})" "\n"), HasSubstr("\"e\" is not a list"));
}

TEST_F(RoutesTest, CompressedOnesToo) {
  const std::string text = std::string(kHead) + R"({"r":7,"ph":"decode","t":0,"e":[[0,1],[2,3]]})" "\n";
  write(text);
  if (std::system(("zstd -q -f " + (dir_ / "t.jsonl").string()).c_str()) != 0) GTEST_SKIP() << "no zstd program";
  const auto routes = read_routes(dir_ / "t.jsonl.zst");
  ASSERT_TRUE(routes.is_ok()) << routes.status().message();
  EXPECT_EQ(routes->requests.size(), 1u);
  std::filesystem::resize_file(dir_ / "t.jsonl.zst", std::filesystem::file_size(dir_ / "t.jsonl.zst") - 5);
  EXPECT_THAT(read_routes(dir_ / "t.jsonl.zst").status().message(), HasSubstr("cut short"));
}

TEST_F(RoutesTest, WhatIsNotCompressedIsNotTakenForIt) {
  EXPECT_THAT(read_routes(write("plain text, no zstd at all", "x.zst")).status().message(),
              HasSubstr("not a zstd file"));
  EXPECT_FALSE(read_routes(dir_ / "none.jsonl").is_ok());
}

TEST_F(RoutesTest, SeveralTracesOfOneShapeAsOne) {
  const std::string line = R"({"r":7,"ph":"decode","t":0,"e":[[0,1],[2,3]]})" "\n";
  auto one = read_routes(write(kHead + line));
  ASSERT_TRUE(one.is_ok());
  auto both = *one;
  ASSERT_TRUE(append_routes(both, *one).is_ok());
  ASSERT_EQ(both.requests.size(), 2u);
  EXPECT_NE(both.requests[0].id, both.requests[1].id);
  EXPECT_THAT(both.chosen(both.requests[1].tokens[0], 1), ElementsAre(2, 3));
  one->experts = 5;
  EXPECT_FALSE(append_routes(both, *one).is_ok());
}

}  // namespace
}  // namespace moestro::tier
