// Which version of a model is served, and by which store: replaced, copied, packed anew, removed, and after a kill.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "store/client/status_client.h"
#include "tests/store/killable_store.h"

namespace moestro::store {
namespace {

using testing::ChildProcess;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class ServedVersions : public KillableStore {
 protected:
  Result<std::string> change(PackChange what, const char* name, const fs::path& pack = {}) {
    return change_packs(endpoint(), what, name, pack.string(), kLong);
  }
  StoreStatusReport status() { return *query_store(endpoint(), kLong); }
  /// Of what is served under a name.
  std::vector<std::string> packs() {
    std::vector<std::string> packs;
    const StoreStatusReport report = status();
    for (const auto& model : report.models)
      if (!model.retired) packs.push_back(model.pack);
    return packs;
  }
  /// Other weights, or the same ones as another version.
  static SmallPack version(float shift) {
    return SmallPack(
        testing::CheckpointOptions{.config = R"({"use_cache": false})", .experts = 8, .shift = shift});
  }
  fs::path copy(const char* name) {
    fs::copy(pack_.dir / "pack", pack_.dir / name, fs::copy_options::recursive);
    return fs::canonical(pack_.dir / name);
  }
  static void spoil(const fs::path& pack) {
    for (const auto& entry : fs::directory_iterator(pack))
      if (entry.path().extension() == ".bin") fs::resize_file(entry.path(), 0);
  }
};

/// The first version stays for as long as the second has bytes where those of the first were read.
TEST_F(ServedVersions, OneThatWasReplacedIsServedByNoSuccessor) {
  const SmallPack twin = version(0);
  const auto twins = fs::canonical(twin.dir / "pack").string();
  auto store = start_store(30, "first.log");
  auto before = attach();
  ASSERT_TRUE(before);
  for (const uint32_t blob : pack_.experts_list) fetch(**before, blob);
  ASSERT_TRUE(change(PackChange::kReplace, "tiny", twins));
  before->reset();
  auto after = attach();
  ASSERT_TRUE(after) << after.status().message();
  const uint64_t loads = status().loads;
  for (const uint32_t blob : pack_.experts_list) fetch(**after, blob);
  EXPECT_EQ(status().loads, loads) << "what both versions have is there, also if one worker comes after another";
  ASSERT_EQ(status().models.size(), 2u) << "the first one's bytes are the second one's";
  for (const char* log : {"second.log", "third.log"}) {
    kill(store);
    store = start_store(30, log);
    EXPECT_THAT(store->output(), HasSubstr("adopted the arena"));
    EXPECT_EQ(packs(), std::vector{twins});
    for (const uint32_t blob : pack_.experts_list) fetch(**after, blob);
  }
  after->reset();
  kill(store);
  fs::rename(pack_.dir / "pack", pack_.dir / "old");  // as one that is deleted
  fs::create_directory_symlink(twins, pack_.dir / "pack");
  store = start_store(30, "fourth.log");
  EXPECT_THAT(store->output(), HasSubstr("is not adopted"));
  EXPECT_EQ(packs(), std::vector{twins});
}

TEST_F(ServedVersions, BackAndForthBetweenTwoThatShareBytesIsAdopted) {
  const SmallPack twin = version(0);
  auto store = start_store(30, "first.log");
  auto client = attach();
  ASSERT_TRUE(client);
  for (const uint32_t blob : pack_.experts_list) fetch(**client, blob);
  for (int round = 0; round < 4; ++round) {
    ASSERT_TRUE(change(PackChange::kReplace, "tiny", twin.dir / "pack"));
    const auto back = change(PackChange::kReplace, "tiny", pack_.dir / "pack");
    ASSERT_TRUE(back) << back.status().message();
  }
  EXPECT_LE(status().models.size(), 2u);
  for (const uint32_t blob : pack_.experts_list) fetch(**client, blob);
  kill(store);
  store = start_store(30, "second.log");
  EXPECT_THAT(store->output(), HasSubstr("adopted the arena"));
  EXPECT_EQ(packs(), std::vector{fs::canonical(pack_.dir / "pack").string()});
  for (const uint32_t blob : pack_.experts_list) fetch(**client, blob);
}

TEST_F(ServedVersions, ACopyOnAnotherDriveIsReadForTheWorkersThatAreThere) {
  auto store = start_store(4, "first.log");
  auto client = attach();
  ASSERT_TRUE(client);
  const fs::path other = copy("other");
  const auto replaced = change(PackChange::kReplace, "tiny", other);
  ASSERT_TRUE(replaced) << replaced.status().message();
  spoil(pack_.dir / "pack");
  for (int round = 0; round < 2; ++round)
    for (const uint32_t blob : pack_.experts_list) fetch(**client, blob);
  ASSERT_EQ(status().models.size(), 1u);
  EXPECT_EQ(status().models[0].pack, other.string());
  EXPECT_EQ(status().models[0].workers, 1u);
  kill(store);
  store = start_store(4, "second.log");
  EXPECT_THAT(store->output(), HasSubstr("adopted the arena"));
  for (const uint32_t blob : pack_.experts_list) fetch(**client, blob);
}

TEST_F(ServedVersions, WhatWasPackedAnewIsNotAddedUnderARunningName) {
  auto store = start_store(30, "first.log");
  const SmallPack other = version(0.25F);
  fs::rename(pack_.dir / "pack", pack_.dir / "old");
  fs::copy(other.dir / "pack", pack_.dir / "pack", fs::copy_options::recursive);
  const auto added = change(PackChange::kAdd, "tiny", pack_.dir / "pack");
  EXPECT_EQ(added.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(added.status().message(), HasSubstr("was packed anew since: use `moestro store replace`"));
}

TEST_F(ServedVersions, AnotherModelDoesNotGetTheNameOfOneWhoseWorkersAreThere) {
  auto store = start_store(30, "first.log");
  auto client = attach();
  ASSERT_TRUE(client);
  const SmallPack other(9);
  ASSERT_TRUE(change(PackChange::kRemove, "tiny"));
  const auto added = change(PackChange::kAdd, "tiny", other.dir / "pack");
  EXPECT_THAT(added.status().message(),
              AllOf(HasSubstr("workers of a model of this name are still there"), HasSubstr("it is another model")));
  client->reset();
  while (!status().models.empty()) std::this_thread::yield();
  EXPECT_TRUE(change(PackChange::kAdd, "tiny", other.dir / "pack"));
}

TEST_F(ServedVersions, WhereTheServedOneIsAwayTheOneBeforeIsNotTakenInstead) {
  auto store = start_store(30, "first.log");
  const SmallPack other = version(0.25F);
  ASSERT_TRUE(change(PackChange::kReplace, "tiny", other.dir / "pack"));
  kill(store);
  fs::rename(other.dir / "pack", other.dir / "away");
  {
    ChildProcess second({testing::program("moestro-store"), "--run-dir", (pack_.dir / "run").string(), "--arena-dir",
                         arena().string(), "--dram", std::to_string(pack_.dram(30)), "--model",
                         "tiny=" + (pack_.dir / "pack").string(), "--poison-freed"},
                        (pack_.dir / "second.log").string());
    EXPECT_EQ(second.wait(), 1);
    EXPECT_THAT(second.output(), AllOf(HasSubstr("nothing is there of what the store before this one served"),
                                       HasSubstr("store.models")));
  }
  fs::rename(other.dir / "away", other.dir / "pack");
  store = start_store(30, "third.log");
  EXPECT_EQ(packs(), std::vector{fs::canonical(other.dir / "pack").string()});
}

TEST_F(ServedVersions, AStoreWhoseModelsWereAllRemovedSaysThatItsSuccessorServesThemAgain) {
  auto store = start_store(30, "first.log");
  ASSERT_TRUE(change(PackChange::kRemove, "tiny"));
  kill(store);
  store = start_store(30, "second.log");
  EXPECT_THAT(store->output(), HasSubstr("all models were removed from the store before this one"));
}

/// Added one by one they had room, as equal dense weights lie there once. Before they are read nobody knows that.
TEST_F(ServedVersions, AddedOnesThatHaveNoRoomInANewArenaDoNotKeepTheOthersFromBeingServed) {
  const auto slots = static_cast<uint32_t>(4 + pack_.dense_bytes / pack_.expert_bytes + 1);
  auto store = start_store(slots, "first.log");
  auto client = attach();
  ASSERT_TRUE(client);
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) names.push_back("copy" + std::to_string(i));
  for (const std::string& name : names) {
    const auto added = change(PackChange::kAdd, name.c_str(), copy(name.c_str()));
    ASSERT_TRUE(added) << name << ": " << added.status().message();
    auto one = attach(kLong, name.c_str());
    ASSERT_TRUE(one) << name << ": " << one.status().message();
  }
  client->reset();
  kill(store);
  store = start_store(slots, "second.log");
  EXPECT_EQ(packs(), std::vector{fs::canonical(pack_.dir / "pack").string()});
  EXPECT_THAT(store->output(), HasSubstr("which was added to the store before this one, is left out"));
}

}  // namespace
}  // namespace moestro::store
