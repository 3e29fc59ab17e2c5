// A store that is killed, and what its successor finds: the real program, clients in this process.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <thread>

#include "store/client/status_client.h"
#include "tests/store/killable_store.h"

namespace moestro::store {
namespace {

using std::chrono::milliseconds;
using testing::ChildProcess;
using ::testing::HasSubstr;

class Adoption : public KillableStore {
 protected:
  /// One byte of the arena, where a blob lies.
  void flip(uint32_t blob) {
    auto table = shm::MappedFile::open(arena() / "table", shm::MappedFile::Access::kReadOnly, 1);
    ASSERT_TRUE(table);
    const uint64_t offset = reinterpret_cast<const TableEntry*>(table->data() + kSharedPage)[blob].offset.load();
    write_byte("arena", offset + 100, 0x5a);
  }
  void write_byte(const char* file, uint64_t offset, int change) {
    std::filesystem::permissions(arena() / file, std::filesystem::perms::owner_write,
                                 std::filesystem::perm_options::add);
    std::fstream stream(arena() / file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(offset));
    const int byte = stream.get();
    stream.seekp(static_cast<std::streamoff>(offset));
    stream.put(static_cast<char>(byte ^ change));
    ASSERT_TRUE(stream.good());
  }
};

TEST_F(Adoption, WhatIsResidentStaysAndTheWorkerGoesOn) {
  auto store = start_store(6, "first.log");
  auto client = attach();
  ASSERT_TRUE(client) << client.status().message();
  for (int i = 0; i < 4; ++i) fetch(**client, pack_.experts_list[static_cast<size_t>(i)]);
  auto held = (*client)->try_pin(pack_.experts_list[0]);
  ASSERT_TRUE(held);
  store->kill(SIGSTOP);  // so that what follows is under way when it dies
  ASSERT_TRUE((*client)->fetch(std::vector<uint32_t>{pack_.experts_list[5]}, {}));
  kill(store);

  EXPECT_TRUE((*client)->check()) << "nothing is lost as long as a successor may come";
  EXPECT_EQ((*client)->store_state(), StoreClient::StoreState::kAway);
  EXPECT_TRUE(pack_.holds(*held));
  EXPECT_TRUE((*client)->try_pin(pack_.experts_list[1])) << "a hit needs no store";
  EXPECT_EQ((*client)->next_arrival(milliseconds(120)).status().code(), Code::kUnavailable) << "a miss waits";

  store = start_store(6, "second.log");
  const auto arrived = (*client)->next_arrival(kLong);
  ASSERT_TRUE(arrived) << arrived.status().message();
  EXPECT_EQ(arrived->blob(), pack_.experts_list[5]);
  EXPECT_TRUE(pack_.holds(*arrived));
  EXPECT_TRUE(pack_.holds(*held)) << "a lease of before stays good";
  EXPECT_EQ((*client)->resumed(), 1u);
  ASSERT_TRUE(store->says("all adopted blobs are checked: 0 of")) << store->output();
  for (int i = 1; i < 4; ++i) {
    const auto hit = (*client)->try_pin(pack_.experts_list[static_cast<size_t>(i)]);
    ASSERT_TRUE(hit);
    EXPECT_TRUE(pack_.holds(*hit));
  }
  const auto status = query_store(endpoint(), kLong);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->loads, 1u) << "only what was under way is read: " << store->output();
  EXPECT_EQ(status->workers.size(), 1u);
  EXPECT_GE(status->adopted, 4u);
  EXPECT_EQ(status->unchecked, 0u);
  auto other = attach();
  ASSERT_TRUE(other) << other.status().message();
  EXPECT_NE((*other)->slot(), (*client)->slot());
  EXPECT_NE((*other)->incarnation(), (*client)->incarnation());
}

TEST_F(Adoption, ABlobWhoseBytesHaveChangedIsReadAgain) {
  auto store = start_store(6, "first.log");
  {
    auto client = attach();
    ASSERT_TRUE(client);
    for (int i = 0; i < 4; ++i) fetch(**client, pack_.experts_list[static_cast<size_t>(i)]);
  }
  store->kill(SIGSTOP);
  flip(pack_.experts_list[2]);
  kill(store);
  store = start_store(6, "second.log");
  auto client = attach();
  ASSERT_TRUE(client) << client.status().message();
  fetch(**client, pack_.experts_list[2]);
  for (int i = 0; i < 4; ++i) fetch(**client, pack_.experts_list[static_cast<size_t>(i)]);
  EXPECT_TRUE(store->says("layer 0, expert 2 (bf16) was adopted and its bytes have changed")) << store->output();
  const auto status = query_store(endpoint(), kLong);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->loads, 1u);
  EXPECT_EQ(status->damaged, 1u);
  EXPECT_GE(status->memory_changed_s, 0);
}

TEST_F(Adoption, ADeadWorkersSlotIsFreeAndItsPinsAreGone) {
  auto store = start_store(3, "first.log");
  auto client = attach();
  ASSERT_TRUE(client);
  {
    auto gone = attach();
    ASSERT_TRUE(gone);
    fetch(**gone, pack_.experts_list[0]);
    store->kill(SIGSTOP);
    // Pinned by a worker that is dead when the next store comes: its word stays, its lock does not.
    auto pins = shm::MappedFile::open(arena() / "pins" / std::to_string((*gone)->slot()),
                                      shm::MappedFile::Access::kReadWrite, 1);
    ASSERT_TRUE(pins);
    gone->reset();
    reinterpret_cast<std::atomic<uint64_t>*>(pins->data() + kSharedPage)[pack_.experts_list[0]].store(PinWord::kPinned |
                                                                                                      1);
  }
  kill(store);
  store = start_store(3, "second.log");
  const auto status = query_store(endpoint(), kLong);
  ASSERT_TRUE(status);
  ASSERT_EQ(status->workers.size(), 1u);
  EXPECT_EQ(status->workers[0].slot, (*client)->slot());
  for (const uint32_t blob : pack_.experts_list) fetch(**client, blob);  // through all three slots of the arena
}

TEST_F(Adoption, WhatCannotBeAdoptedIsNamedAndLetGoOf) {
  struct Case {
    const char* name;
    std::function<void()> change;
    uint32_t slots;
    std::string says;
  };
  const std::vector<Case> cases{
      {"size", [] {}, 5, "bytes, and " + std::to_string(pack_.dram(5)) + " are needed now"},
      {"magic", [&] { write_byte("table", 0, 1); }, 6, "the head of its table does not say what its directory says"},
      {"state", [&] { write_byte("table", kSharedPage, 0x40); }, 6, "has a state that does not exist"},
      {"offset", [&] { write_byte("table", kSharedPage + 64 * pack_.experts_list[0] + 8 + 7, 0x10); }, 6,
       "where it cannot lie or something else does"},
      {"directory", [&] { write_byte("directory", 20, 1); }, 6, "it does not match its checksum"},
      {"cut short", [&] { std::filesystem::resize_file(arena() / "arena", 8192); }, 6, "8192 bytes, at least"},
      {"unfinished", [&] { std::filesystem::remove(arena() / "directory"); }, 6, "it was not finished"}};
  auto store = start_store(6, "first.log");
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    auto client = attach();
    ASSERT_TRUE(client) << client.status().message();
    fetch(**client, pack_.experts_list[0]);
    auto lease = (*client)->try_pin(pack_.experts_list[0]);
    ASSERT_TRUE(lease);
    if (std::string_view(c.name) == "cut short")
      lease->release(), client->reset();  // reading beyond a file's end is a fault of the reader
    kill(store);
    c.change();
    const std::string log = std::string(c.name) + ".log";
    std::thread worker([&] {  // which ends its step, unmaps, and attaches anew
      if (!*client) return;
      while ((*client)->check()) std::this_thread::yield();
      EXPECT_THAT((*client)->check().message(), HasSubstr("has begun a new arena"));
      EXPECT_FALSE(std::filesystem::exists(arena() / "directory"));
      EXPECT_TRUE(pack_.holds(*lease)) << "what is mapped stays as it is until it is let go of";
      lease->release();
      client->reset();
    });
    store = start_store(c.slots, log.c_str());
    worker.join();
    EXPECT_THAT(store->output(), HasSubstr("is not adopted: "));
    EXPECT_THAT(store->output(), HasSubstr(c.says));
    auto fresh = attach();
    ASSERT_TRUE(fresh) << fresh.status().message();
    fetch(**fresh, pack_.experts_list[0]);
    EXPECT_EQ(query_store(endpoint(), kLong)->adopted, 0u);
    if (c.slots != 6) {
      fresh->reset();
      kill(store);
      store = start_store(6, "again.log");
    }
  }
}

TEST_F(Adoption, OtherPacksAreNamed) {
  auto store = start_store(6, "first.log");
  kill(store);
  const SmallPack other(8);
  store = start_store(6, "second.log", {"--model", "other=" + (other.dir / "pack").string()});
  EXPECT_THAT(store->output(), HasSubstr("it is of other packs, or other versions of them: " +
                                         std::filesystem::canonical(pack_.dir / "pack").string()));
}

TEST_F(Adoption, PacksComeAndGoAfterIt) {
  auto store = start_store(8, "first.log");
  auto client = attach();
  ASSERT_TRUE(client);
  fetch(**client, pack_.experts_list[0]);
  kill(store);
  store = start_store(8, "second.log");
  const SmallPack other(testing::CheckpointOptions{.experts = 2, .shift = 0.5F}),
      its_next_version(testing::CheckpointOptions{.experts = 2, .shift = 0.25F});
  const auto change = [&](PackChange what, const char* name, const std::filesystem::path& pack) {
    const auto done = change_packs(endpoint(), what, name, pack.string(), kLong);
    EXPECT_TRUE(done) << done.status().message();
  };
  change(PackChange::kAdd, "other", other.dir / "pack");
  {
    auto added = attach(kLong, "other");
    ASSERT_TRUE(added) << added.status().message();
    ASSERT_TRUE((*added)->fetch(other.experts_list, {}));
    for (size_t i = 0; i < other.experts_list.size(); ++i) {
      const auto arrived = (*added)->next_arrival(kLong);
      ASSERT_TRUE(arrived) << arrived.status().message();
      EXPECT_TRUE(other.holds(*arrived));
    }
  }
  for (const uint32_t blob : pack_.experts_list) fetch(**client, blob);
  change(PackChange::kReplace, "other", its_next_version.dir / "pack");
  change(PackChange::kRemove, "other", {});
  // The directory says what is so now: the store of that command line adopts again.
  while (query_store(endpoint(), kLong)->models.size() > 1) std::this_thread::yield();
  kill(store);
  store = start_store(8, "third.log");
  EXPECT_THAT(store->output(), HasSubstr("adopted the arena"));
  for (const uint32_t blob : pack_.experts_list) fetch(**client, blob);
}

TEST_F(Adoption, AWorkerKeepsTheVersionThatItAttachedWith) {
  const SmallPack other(testing::CheckpointOptions{.experts = 8, .shift = 0.5F});
  const std::vector<std::string> both{"--model", "other=" + (other.dir / "pack").string()};
  const auto slots = static_cast<uint32_t>(12 + other.dense_bytes / pack_.expert_bytes + 1);
  auto store = start_store(slots, "first.log", both);
  auto before = attach();
  ASSERT_TRUE(before) << before.status().message();
  const auto replaced = change_packs(endpoint(), PackChange::kReplace, "tiny", (other.dir / "pack").string(), kLong);
  ASSERT_TRUE(replaced) << replaced.status().message();
  auto after = attach();  // of the same name, and of another version
  ASSERT_TRUE(after) << after.status().message();
  kill(store);
  store = start_store(slots, "second.log", both);
  EXPECT_THAT(store->output(), HasSubstr("adopted the arena"));
  const auto models = query_store(endpoint(), kLong)->models;
  ASSERT_EQ(models.size(), 3u);
  for (const auto& model : models)
    EXPECT_EQ(model.retired, model.pack == std::filesystem::canonical(pack_.dir / "pack")) << model.pack;
  for (size_t i = 0; i < 3; ++i) {
    fetch(**before, pack_.experts_list[i]);
    ASSERT_TRUE((*after)->fetch(std::vector<uint32_t>{other.experts_list[i]}, {}));
    const auto arrived = (*after)->next_arrival(kLong);
    ASSERT_TRUE(arrived) << arrived.status().message();
    EXPECT_TRUE(other.holds(*arrived));
  }
}

TEST_F(Adoption, AMissThatWaitsTooLongFailsByName) {
  auto store = start_store(4, "store.log");
  auto client = attach(milliseconds(200));
  ASSERT_TRUE(client);
  fetch(**client, pack_.experts_list[0]);
  kill(store);
  const uint32_t wanted = pack_.experts_list[7];
  ASSERT_TRUE((*client)->fetch(std::vector<uint32_t>{wanted}, {}));
  const auto failed = (*client)->next_arrival(kLong);
  EXPECT_EQ(failed.status().code(), Code::kIo);
  EXPECT_EQ((*client)->failed_blob(), wanted) << "that one alone: others may be there";
  EXPECT_THAT(failed.status().message(), HasSubstr("no store has come back at " + endpoint() + " for 200 ms"));
  EXPECT_TRUE((*client)->try_pin(pack_.experts_list[0]));
  store = start_store(4, "second.log");
  fetch(**client, wanted);
}

/// As a device with a memory of its own asks: it looks whether something has arrived, and has other things to do.
Result<Lease> poll(StoreClient& client, milliseconds at_most) {
  const auto end = std::chrono::steady_clock::now() + at_most;
  while (true) {
    auto arrived = client.next_arrival(milliseconds(0));
    if (arrived || arrived.status().code() != Code::kUnavailable || std::chrono::steady_clock::now() > end)
      return arrived;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

TEST_F(Adoption, WhatADeadStoreWasAskedIsAskedAgainHoweverShortTheWaitsAre) {
  auto store = start_store(6, "first.log");
  auto client = attach();
  ASSERT_TRUE(client) << client.status().message();
  fetch(**client, pack_.experts_list[0]);
  store->kill(SIGSTOP);  // it does not hear what it is asked now, and never will
  ASSERT_TRUE((*client)->fetch(std::vector<uint32_t>{pack_.experts_list[5], pack_.experts_list[6]}, {}));
  kill(store);
  store = start_store(6, "second.log");
  for (int i = 0; i < 2; ++i) {
    const auto arrived = poll(**client, kLong);
    ASSERT_TRUE(arrived) << arrived.status().message();
    EXPECT_TRUE(pack_.holds(*arrived));
  }
  EXPECT_EQ((*client)->resumed(), 1u);
}

TEST_F(Adoption, AMissThatIsLookedForNowAndThenFailsByNameToo) {
  auto store = start_store(4, "store.log");
  auto client = attach(milliseconds(200));
  ASSERT_TRUE(client) << client.status().message();
  kill(store);
  ASSERT_TRUE((*client)->fetch(std::vector<uint32_t>{pack_.experts_list[6], pack_.experts_list[7]}, {}));
  for (const size_t wanted : {6, 7}) {
    const auto failed = poll(**client, kLong);
    EXPECT_EQ(failed.status().code(), Code::kIo) << failed.status().message();
    EXPECT_EQ((*client)->failed_blob(), pack_.experts_list[wanted]);
  }
}

TEST_F(Adoption, KilledAgainAndAgainNothingIsReadTwice) {
  auto store = start_store(6, "0.log");
  auto client = attach();
  ASSERT_TRUE(client);
  for (int i = 0; i < 6; ++i) fetch(**client, pack_.experts_list[static_cast<size_t>(i)]);
  for (int round = 1; round <= 5; ++round) {
    kill(store);
    store = start_store(6, (std::to_string(round) + ".log").c_str());
    for (int i = 0; i < 6; ++i) fetch(**client, pack_.experts_list[static_cast<size_t>(i)]);
    EXPECT_EQ(query_store(endpoint(), kLong)->loads, 0u);
    EXPECT_TRUE((*client)->check());
  }
  EXPECT_EQ((*client)->resumed(), 5u);
}

/// Another small pack, with other bytes.
SmallPack shifted_pack() { return SmallPack(testing::CheckpointOptions{.shift = 0.25F}); }

TEST_F(Adoption, AModelThatWasAddedIsServedByTheNextStoreOutOfTheSameArena) {
  const SmallPack more = shifted_pack();
  auto store = start_store(30, "first.log");
  ASSERT_TRUE(change_packs(endpoint(), PackChange::kAdd, "more", (more.dir / "pack").string(), kLong));
  auto client = attach(), other = attach(kLong, "more");
  ASSERT_TRUE(client && other) << other.status().message();
  fetch(**client, pack_.experts_list[0]);
  for (int round = 0; round < 2; ++round) {  // the second time a store is killed that was a successor itself
    kill(store);
    store = start_store(30, round == 0 ? "second.log" : "third.log");
    EXPECT_THAT(store->output(), HasSubstr("going on with the models of the store that was killed: tiny, more"));
    EXPECT_THAT(store->output(), HasSubstr("adopted the arena"));
    const auto again = attach(kLong, "more");
    ASSERT_TRUE(again) << again.status().message();
    for (const uint32_t blob : {more.experts_list[0], more.experts_list[1]}) {
      ASSERT_TRUE((*other)->fetch(std::vector<uint32_t>{blob}, {}));
      const auto arrived = (*other)->next_arrival(kLong);
      ASSERT_TRUE(arrived) << arrived.status().message();
      EXPECT_TRUE(more.holds(*arrived));
    }
    fetch(**client, pack_.experts_list[1]);
  }
  store->kill(SIGTERM);
  EXPECT_EQ(store->wait(), 0);
  store = start_store(30, "fourth.log");
  EXPECT_EQ(attach(kLong, "more").status().code(), Code::kNotFound) << "a store that was shut down forgets it";
}

TEST_F(Adoption, AModelThatWasRemovedStaysAway) {
  auto store = start_store(30, "first.log");
  const SmallPack more = shifted_pack();
  ASSERT_TRUE(change_packs(endpoint(), PackChange::kAdd, "more", (more.dir / "pack").string(), kLong));
  ASSERT_TRUE(change_packs(endpoint(), PackChange::kRemove, "tiny", "", kLong));
  kill(store);
  store = start_store(30, "second.log");
  EXPECT_EQ(attach().status().code(), Code::kNotFound);
  EXPECT_TRUE(attach(kLong, "more"));
}

TEST_F(Adoption, AnAddedPackThatIsGoneDoesNotKeepTheOthersFromBeingServed) {
  auto store = start_store(30, "first.log");
  {
    const SmallPack more = shifted_pack();
    ASSERT_TRUE(change_packs(endpoint(), PackChange::kAdd, "more", (more.dir / "pack").string(), kLong));
  }
  kill(store);
  store = start_store(30, "second.log");
  EXPECT_THAT(store->output(), HasSubstr("model 'more', which the store before this one served, is left out"));
  EXPECT_TRUE(attach());
}

TEST_F(Adoption, AStoreThatIsStartedWithOtherModelsForgetsThem) {
  auto store = start_store(30, "first.log");
  const SmallPack more = shifted_pack();
  ASSERT_TRUE(change_packs(endpoint(), PackChange::kAdd, "more", (more.dir / "pack").string(), kLong));
  kill(store);
  store = start_store(30, "second.log", {"--model", "also=" + (pack_.dir / "pack").string()});
  EXPECT_EQ(attach(kLong, "more").status().code(), Code::kNotFound);
  EXPECT_TRUE(attach(kLong, "also"));
}

TEST_F(Adoption, AStoreThatFindsNoRoomForItsKeyHasTheOneThatIsThere) {
  auto store = start_store(6, "first.log");
  const auto key = testing::read_text(pack_.dir / "run" / "store.key");
  kill(store);
  store = start_store(6, "second.log");
  EXPECT_EQ(testing::read_text(pack_.dir / "run" / "store.key"), key);
  kill(store);
  testing::write_text(pack_.dir / "run" / "store.key", "not a key\n");
  store = start_store(6, "third.log");
  const auto made = testing::read_text(pack_.dir / "run" / "store.key");
  EXPECT_EQ(made.size(), key.size());
  EXPECT_NE(made, key);
}

}  // namespace
}  // namespace moestro::store
