// Models that are added, replaced, removed and put right under a running store with workers attached.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "store/client/status_client.h"
#include "tests/store/store_fixture.h"

namespace moestro::store {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

testing::CheckpointOptions weights(float shift) { return {.experts = 8, .shift = shift}; }

class PacksWhileServing : public ::testing::TestWithParam<IoKind> {
 protected:
  PacksWhileServing() : a_(weights(0)), b_(weights(0.25F)) {
    StoreOptions options = store_options(a_, a_.dense_bytes + b_.dense_bytes + 8 * a_.expert_bytes);
    options.io = GetParam();
    options.models = {{"a", a_.dir / "pack"}, {"also", a_.dir / "pack"}};
    store_ = std::make_unique<RunningStore>(options);
    EXPECT_TRUE(store_->status()) << store_->status().message();
  }
  Result<std::string> change(PackChange kind, const std::string& name, const std::filesystem::path& pack = {}) {
    return change_packs(store_->endpoint(), kind, name, pack.string(), kLong);
  }
  Result<std::unique_ptr<StoreClient>> attach(const std::string& model) {
    return StoreClient::attach({.endpoint = store_->endpoint(), .model = model, .client = model});
  }
  /// All experts, in any order, with the bytes of `pack`.
  static void read_all(StoreClient& client, const SmallPack& pack) {
    ASSERT_TRUE(client.fetch(pack.experts_list, {}));
    for (size_t i = 0; i < pack.experts_list.size(); ++i) {
      const auto arrived = client.next_arrival(kLong);
      ASSERT_TRUE(arrived) << arrived.status().message();
      ASSERT_TRUE(pack.holds(*arrived)) << "blob " << arrived->blob();
    }
  }
  StoreStatusReport status() { return *query_store(store_->endpoint(), kLong); }
  /// The store goes on with a pack that nobody uses any more at its next turn.
  bool models_become(size_t count) {
    for (int i = 0; i < 1000; ++i) {
      if (status().models.size() == count) return true;
    }
    return false;
  }
  SmallPack a_, b_;
  std::unique_ptr<RunningStore> store_;
};

TEST_P(PacksWhileServing, AnAddedModelIsServedBesideTheOthers) {
  auto a = attach("a");
  ASSERT_TRUE(a) << a.status().message();
  read_all(**a, a_);
  EXPECT_EQ(attach("b").status().code(), Code::kNotFound);
  const auto added = change(PackChange::kAdd, "b", b_.dir / "pack");
  ASSERT_TRUE(added) << added.status().message();
  auto b = attach("b");
  ASSERT_TRUE(b) << b.status().message();
  for (int round = 0; round < 3; ++round) read_all(**b, b_), read_all(**a, a_);
  EXPECT_EQ(status().models.size(), 3u);
}

TEST_P(PacksWhileServing, ReplacingNamesTheTextsThatOrchestratorsHaveReadOtherwise) {
  std::ofstream(b_.dir / "src" / "chat_template.jinja") << "{{ messages }}";
  ASSERT_TRUE(pack_checkpoint(b_.dir / "src", b_.dir / "other", {}, {}));
  const auto replaced = change(PackChange::kReplace, "a", b_.dir / "other");
  ASSERT_TRUE(replaced) << replaced.status().message();
  EXPECT_THAT(*replaced, HasSubstr("it has another chat_template.jinja than before"));
}

TEST_P(PacksWhileServing, ReplacingChangesNothingUnderAWorkerAndTheOldVersionGoesWithIt) {
  auto old = attach("a");
  ASSERT_TRUE(old);
  const auto replaced = change(PackChange::kReplace, "a", b_.dir / "pack");
  ASSERT_TRUE(replaced) << replaced.status().message();
  ASSERT_TRUE(change(PackChange::kRemove, "also"));
  auto fresh = attach("a");
  ASSERT_TRUE(fresh) << fresh.status().message();
  for (int round = 0; round < 3; ++round) read_all(**old, a_), read_all(**fresh, b_);
  EXPECT_EQ(status().models.size(), 2u) << "the version that `old` keeps is listed too";
  EXPECT_TRUE(status().models[1].retired);
  old->reset();
  EXPECT_TRUE(models_become(1));
  read_all(**fresh, b_);
  const uint64_t all_of_b = b_.dense_bytes + 8 * b_.expert_bytes;
  EXPECT_LE(status().used_bytes, all_of_b + 2 * b_.expert_bytes) << "what the old version had is free again";
}

TEST_P(PacksWhileServing, AnotherModelDoesNotTakeThePlaceOfOne) {
  auto client = attach("a");
  ASSERT_TRUE(client);
  const SmallPack larger(testing::CheckpointOptions{.experts = 9});
  const auto refused = change(PackChange::kReplace, "a", larger.dir / "pack");
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), AllOf(HasSubstr("it is another model: num_experts"), HasSubstr(" is 9, "),
                                                HasSubstr("moestro store add")));
  EXPECT_EQ(status().models.size(), 2u);
  read_all(**client, a_);
}

TEST_P(PacksWhileServing, ARemovedModelRefusesNewWorkersAndKeepsItsOwn) {
  auto client = attach("a");
  ASSERT_TRUE(client);
  ASSERT_TRUE(change(PackChange::kRemove, "also"));
  const auto removed = change(PackChange::kRemove, "a");
  ASSERT_TRUE(removed);
  EXPECT_THAT(*removed, HasSubstr("1 worker of it keep"));
  EXPECT_THAT(attach("a").status().message(), HasSubstr("it serves none"));
  read_all(**client, a_);
  client->reset();
  EXPECT_TRUE(models_become(0));
  EXPECT_EQ(status().used_bytes, 0u);
  EXPECT_EQ(change(PackChange::kRemove, "a").status().code(), Code::kNotFound);
}

TEST_P(PacksWhileServing, ModelsComeAndGoAgainAndAgain) {
  auto a = attach("a");
  ASSERT_TRUE(a);
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(change(PackChange::kAdd, "b", b_.dir / "pack"));
    auto b = attach("b");
    ASSERT_TRUE(b) << b.status().message();
    read_all(**b, b_);
    ASSERT_TRUE(change(PackChange::kRemove, "b"));
    read_all(**b, b_);
    b->reset();
    read_all(**a, a_);
  }
  EXPECT_TRUE(models_become(2));
}

TEST_P(PacksWhileServing, WhatIsLostIsBadByNameAndMendedWhenItIsPutBack) {
  auto client = attach("a");
  ASSERT_TRUE(client);
  std::string file;
  for (const std::string& name : a_.manifest.files)
    if (name.starts_with("experts")) file = name;
  const std::filesystem::path path = a_.dir / "pack" / file, kept = a_.dir / "kept";
  std::filesystem::copy_file(path, kept);
  std::filesystem::resize_file(path, 4096);
  std::filesystem::remove(path);
  size_t failed = 0;
  ASSERT_TRUE((*client)->fetch(a_.experts_list, {}));
  for (size_t i = 0; i < a_.experts_list.size(); ++i) {
    const auto arrived = (*client)->next_arrival(kLong);
    failed += !arrived;
    if (!arrived) EXPECT_THAT(arrived.status().message(), HasSubstr("model a, layer"));
  }
  EXPECT_GT(failed, 0u);
  const auto missing = change(PackChange::kReplace, "a", a_.dir / "pack");
  ASSERT_FALSE(missing) << "it is not whole yet";
  EXPECT_THAT(missing.status().message(), HasSubstr(file));
  std::filesystem::copy_file(kept, path);
  ASSERT_TRUE(change(PackChange::kReplace, "a", a_.dir / "pack"));
  read_all(**client, a_);  // the worker that was there all the time
}

TEST_P(PacksWhileServing, WhatCannotBeServedIsRefusedWholeAndSaysWhy) {
  const auto message_of = [](const Result<std::string>& result) {
    return result ? "done: " + *result : result.status().message();
  };
  EXPECT_THAT(message_of(change(PackChange::kAdd, "x", a_.dir / "nowhere")), HasSubstr("model 'x': no pack at"));
  EXPECT_THAT(message_of(change(PackChange::kAdd, "x", a_.dir.path())), HasSubstr("not a pack"));
  EXPECT_THAT(message_of(change(PackChange::kAdd, "a=b", a_.dir / "pack")), HasSubstr("a model's name has"));
  EXPECT_THAT(message_of(change(PackChange::kAdd, "a", b_.dir / "pack")), HasSubstr("use `moestro store replace`"));
  EXPECT_THAT(message_of(change(PackChange::kReplace, "x", b_.dir / "pack")), HasSubstr("does not serve model 'x'"));
  std::fstream manifest(b_.dir / "pack" / "manifest", std::ios::in | std::ios::out | std::ios::binary);
  manifest.seekp(100);
  manifest << "xx";
  manifest.close();
  EXPECT_THAT(message_of(change(PackChange::kAdd, "b", b_.dir / "pack")), HasSubstr("checksum differs"));
  const SmallPack large(testing::CheckpointOptions{.experts = 2, .layers = 1, .vocab = 40000});
  EXPECT_THAT(message_of(change(PackChange::kAdd, "large", large.dir / "pack")),
              HasSubstr("raise --dram, or remove another model first"));
  EXPECT_EQ(status().models.size(), 2u);
  EXPECT_TRUE(change(PackChange::kAdd, "a", a_.dir / "pack")) << "that is how it is already";
}

/// `a` and `b` take turns in an arena that has room for the dense weights and 8 experts; `b` is guaranteed 6 experts,
/// `a` has at most 5.
TEST(SharesOfModels, HoldWhateverTheOtherOneAsksFor) {
  const SmallPack a(weights(0)), b(weights(0.25F));
  StoreOptions options = store_options(a, a.dense_bytes + b.dense_bytes + 12 * a.expert_bytes);
  options.models = {{"a", a.dir / "pack"}, {"b", b.dir / "pack"}};
  options.shares = {{"a", 0, a.dense_bytes + 5 * a.expert_bytes},
                    {"b", b.dense_bytes + 6 * b.expert_bytes, UINT64_MAX}};
  RunningStore store(options);
  ASSERT_TRUE(store.status()) << store.status().message();
  auto in_a = StoreClient::attach({.endpoint = store.endpoint(), .model = "a"});
  auto in_b = StoreClient::attach({.endpoint = store.endpoint(), .model = "b"});
  ASSERT_TRUE(in_a && in_b) << in_a.status().message() << in_b.status().message();
  const auto read = [](StoreClient& client, const std::vector<uint32_t>& blobs) {
    for (const uint32_t blob : blobs) {
      ASSERT_TRUE(client.fetch(std::vector<uint32_t>{blob}, {}));
      const auto arrived = client.next_arrival(kLong);
      ASSERT_TRUE(arrived) << arrived.status().message();
    }
  };
  read(**in_b, {b.experts_list.begin(), b.experts_list.begin() + 6});
  for (int round = 0; round < 3; ++round) read(**in_a, a.experts_list);
  const auto status = query_store(store.endpoint(), kLong);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->models[0].used_bytes, a.dense_bytes + 5 * a.expert_bytes) << "a's maximum";
  EXPECT_EQ(status->models[1].resident_experts, 6u) << "b's guarantee";
  EXPECT_EQ(status->models[1].guaranteed_bytes, b.dense_bytes + 6 * b.expert_bytes);
}

TEST(SharesOfModels, ThatDoNotFitAreRefused) {
  const SmallPack pack(weights(0));
  StoreOptions options = store_options(pack, pack.dram(4));
  options.shares = {{"tiny", pack.dram(5), UINT64_MAX}};
  EXPECT_THAT(RunningStore(options).status().message(), HasSubstr("the guarantees add up to"));
  options.shares = {{"tiny", 0, pack.dense_bytes}};
  RunningStore store(options);
  ASSERT_TRUE(store.status());
  const auto refused = StoreClient::attach({.endpoint = store.endpoint(), .model = "tiny"});
  EXPECT_THAT(refused.status().message(), HasSubstr("its maximum in store.shares leaves 0"));
}

INSTANTIATE_TEST_SUITE_P(Io, PacksWhileServing, ::testing::Values(IoKind::kAuto, IoKind::kPread),
                         [](const auto& kind) { return kind.param == IoKind::kAuto ? "auto" : "pread"; });

}  // namespace
}  // namespace moestro::store
