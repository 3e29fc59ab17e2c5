#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/box/model_shares.h"
#include "services/box/named_pack.h"
#include "services/box/places.h"

namespace moestro::box {
namespace {

using ::testing::HasSubstr;

TEST(NamedPack, NamesThatCouldLeaveTheirPlaceAreRefused) {
  for (const char* name :
       {"",   ".",  "..",   "a b",    "a=b",  "a,b",  "-x",   "\xc3\xbc", "a\n", "a\x7f", "/",
        "/a", "a/", "a//b", "a/../b", "a/.b", "a/-b", "../a", "a?b",      "a#b", "a%2Fb", "a\\b"}) {
    const Status refused = check_model_name(name);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << name;
    EXPECT_THAT(refused.message(), HasSubstr("is no model name"));
    for (const char c : refused.message()) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << "one line, whatever the name is";
  }
  EXPECT_FALSE(check_model_name(std::string(129, 'a')).is_ok());
  for (const std::string& name : {std::string("demo"), std::string("Qwen3-30B-A3B"), std::string("a.b_c"),
                                  std::string("Qwen/Qwen3-30B-A3B"), std::string("qwen3:30b"), std::string(128, 'a')})
    EXPECT_TRUE(check_model_name(name).is_ok()) << name;
}

TEST(NamedPack, ANameIsOneLevelOfAPath) {
  EXPECT_EQ(name_in_path("Qwen/Qwen3-30B-A3B"), "Qwen--Qwen3-30B-A3B");
  EXPECT_EQ(name_in_path("qwen3:30b"), "qwen3--30b");
  EXPECT_EQ(name_in_path("demo"), "demo");
}

TEST(NamedPack, Aliases) {
  config::BoxConfig box;
  EXPECT_TRUE(aliases_of(box)->empty());
  box.model.name = "demo";
  box.model.aliases = "gpt-4o,Qwen/Qwen3-30B-A3B";
  EXPECT_EQ(*aliases_of(box), (std::vector<std::string>{"gpt-4o", "Qwen/Qwen3-30B-A3B"}));
  for (const auto& [wrong, why] : {std::pair("a,,b", "is no model name"), std::pair("a b", "is no model name"),
                                   std::pair("a,a", "has already"), std::pair("demo", "has already")}) {
    box.model.aliases = wrong;
    EXPECT_THAT(aliases_of(box).status().message(), HasSubstr(why)) << wrong;
  }
}

TEST(NamedPack, NameAndPackOfAFlag) {
  const auto model = parse_named_pack("demo=/packs/a=b");
  ASSERT_TRUE(model.is_ok());
  EXPECT_EQ(model->name, "demo");
  EXPECT_EQ(model->pack, "/packs/a=b");
  EXPECT_EQ(parse_named_pack("a/b=/p")->name, "a/b");
  for (const char* text : {"demo", "=/p", "demo=", "a/=/p"}) EXPECT_FALSE(parse_named_pack(text).is_ok()) << text;
}

TEST(NamedPack, APackDirectoryNamesItsModel) {
  config::BoxConfig box;
  EXPECT_THAT(model_of(box).status().message(), HasSubstr("model.pack"));
  for (const char* pack : {"/packs/tiny", "/packs/tiny/", "/packs/./x/../tiny"}) {
    box.model.pack = pack;
    ASSERT_TRUE(model_of(box).is_ok()) << pack;
    EXPECT_EQ(model_of(box)->name, "tiny") << pack;
  }
  box.model.name = "other";
  EXPECT_EQ(model_of(box)->name, "other");
}

TEST(Places, NamesGoBeforeTheFirstDot) {
  EXPECT_EQ(insert_name("/a.b/routes.jsonl.zst", "worker-1"), "/a.b/routes.worker-1.jsonl.zst");
  EXPECT_EQ(insert_name("routes", "w"), "routes.w");
  EXPECT_EQ(insert_name(".hidden", "w"), ".hidden.w");
}

TEST(Places, SeveralWorkersShareTheCoresAndNoFile) {
  config::BoxConfig box;
  EXPECT_EQ(own_file(box, "/t/r.jsonl", "w"), "/t/r.jsonl");
  EXPECT_EQ(worker_threads(box, 8), std::nullopt) << "one worker knows best";
  box.workers.count = 3;
  EXPECT_EQ(own_file(box, "/t/r.jsonl", "w"), "/t/r.w.jsonl");
  EXPECT_EQ(own_file(box, "", "w"), "");
  EXPECT_EQ(worker_threads(box, 8), 2);
  EXPECT_EQ(worker_threads(box, 2), 1);
  box.workers.threads = 5;
  EXPECT_EQ(worker_threads(box, 8), 5);
}

TEST(ModelShares, AreReadAndRefusedByTheirText) {
  const auto shares = parse_model_shares("big=4GiB..12GiB, small=..2M,chat = 1K");
  ASSERT_TRUE(shares) << shares.status().message();
  ASSERT_EQ(shares->size(), 3u);
  EXPECT_EQ((*shares)[0].guaranteed, uint64_t{4} << 30);
  EXPECT_EQ((*shares)[0].maximal, uint64_t{12} << 30);
  EXPECT_EQ((*shares)[1].guaranteed, 0u);
  EXPECT_EQ((*shares)[1].maximal, uint64_t{2} << 20);
  EXPECT_EQ((*shares)[2].model, "chat");
  EXPECT_FALSE((*shares)[2].maximal);
  EXPECT_TRUE(parse_model_shares("")->empty());
  for (const char* wrong : {"big", "big=", "big=..", "=1G", "b d=1G", "big=1x", "big=2G..1G", "big=1G..3y",
                            "big=1G,big=2G", "a=1G,,b=1G"}) {
    const auto refused = parse_model_shares(wrong);
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
    EXPECT_NE(refused.status().message().find("store.shares: "), std::string::npos) << refused.status().message();
  }
}

}  // namespace
}  // namespace moestro::box
