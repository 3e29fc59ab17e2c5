// A packer is killed at many points; the next one goes on and ends with the same bytes as one that was left in peace.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <limits>
#include <optional>

#include "store/pack/journal.h"
#include "store/pack/manifest.h"
#include "store/pack/packer.h"
#include "store/pack/spread.h"
#include "store/pack/verify.h"
#include "tests/pack/synthetic_checkpoint.h"

namespace moestro::store {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using testing::read_directory;

class Resume : public ::testing::Test {
 protected:
  Resume() {
    testing::write_checkpoint(dir_ / "src", {.experts = 6, .layers = 3});
    options_.experts = {DType::kBF16, DType::kInt8};
    options_.commit_bytes = 100'000;
  }

  /// Packs in a child that kills itself when `calls` progress reports have come, or ends by itself.
  void pack_and_kill(int calls, unsigned jobs) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      int seen = 0;
      PackOptions options = options_;
      options.jobs = jobs;
      const PackObserver observer{[&](uint64_t, uint64_t) { if (seen++ == calls) kill(getpid(), SIGKILL); }, {}};
      _exit(pack_checkpoint(dir_ / "src", dir_ / "pack", options, observer).is_ok() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    killed_ = WIFSIGNALED(status);
    if (!killed_) { ASSERT_EQ(WEXITSTATUS(status), 0); }
  }

  Result<PackSummary> pack(const std::string& to) {
    notes_.clear();
    return pack_checkpoint(dir_ / "src", dir_ / to, options_,
                           {{}, [this](const std::string& line) { notes_.push_back(line); }});
  }

  testing::TemporaryDirectory dir_;
  PackOptions options_;
  std::vector<std::string> notes_;
  bool killed_ = false;
};

TEST_F(Resume, AfterAKillAtAnyPoint) {
  ASSERT_TRUE(pack("whole"));
  const auto expected = read_directory(dir_ / "whole");
  bool any_resumed = false;
  int kills = 0;
  for (int calls = 0;; calls += 3) {
    std::filesystem::remove_all(dir_ / "pack");
    pack_and_kill(calls, 1 + static_cast<unsigned>(calls % 2));
    if (!killed_) break;
    ++kills;
    EXPECT_THAT(open_pack(dir_ / "pack").status().message(), HasSubstr("unfinished pack")) << "half a pack is no pack";
    const auto summary = pack("pack");
    ASSERT_TRUE(summary) << summary.status().message();
    any_resumed |= summary->resumed_bytes > 0;
    EXPECT_LT(summary->resumed_bytes, summary->bytes);
    ASSERT_EQ(read_directory(dir_ / "pack"), expected) << "killed after " << calls << " reports";
  }
  EXPECT_GE(kills, 10);
  EXPECT_TRUE(any_resumed);
}

TEST_F(Resume, AfterSeveralKillsInARow) {
  ASSERT_TRUE(pack("whole"));
  int runs = 0;
  do pack_and_kill(5, 1);
  while (killed_ && ++runs < 100);
  EXPECT_GE(runs, 2);
  EXPECT_FALSE(killed_) << "every run gets further";
  EXPECT_EQ(read_directory(dir_ / "pack"), read_directory(dir_ / "whole"));
}

TEST_F(Resume, StartsAnewWhereOptionsOrSourceDiffer) {
  ASSERT_TRUE(pack("bf16-first"));
  options_.experts = {DType::kInt8};
  ASSERT_TRUE(pack("int8"));
  options_.experts = {DType::kBF16, DType::kInt8};
  pack_and_kill(20, 1);
  ASSERT_TRUE(killed_);
  options_.experts = {DType::kInt8};
  const auto summary = pack("pack");
  ASSERT_TRUE(summary) << summary.status().message();
  EXPECT_EQ(summary->resumed_bytes, 0u);
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_THAT(notes_[0], HasSubstr("starting anew"));
  auto files = read_directory(dir_ / "pack");
  EXPECT_EQ(files.count("experts-bf16-000.bin"), 0u) << "nothing is left of the other pack";
  EXPECT_EQ(files, read_directory(dir_ / "int8"));
}

// Archives give all files one time, and a fine-tuned model has the sizes of its base.
TEST_F(Resume, StartsAnewWhereTheSourceHasOtherBytesAndTheSameTime) {
  const auto file = dir_ / "src" / "model.safetensors";
  const auto time = std::filesystem::last_write_time(file);
  pack_and_kill(20, 1);
  ASSERT_TRUE(killed_);
  testing::write_checkpoint(dir_ / "src", {.experts = 6, .layers = 3, .value = [](auto&, int64_t i) {
                              return static_cast<float>(i % 7) / 8.0f;
                            }});
  std::filesystem::last_write_time(file, time);
  ASSERT_TRUE(pack("whole"));
  const auto summary = pack("pack");
  ASSERT_TRUE(summary) << summary.status().message();
  EXPECT_EQ(summary->resumed_bytes, 0u);
  EXPECT_EQ(read_directory(dir_ / "pack"), read_directory(dir_ / "whole"));
}

TEST_F(Resume, StartsAnewWhereFilesAreGone) {
  ASSERT_TRUE(pack("whole"));
  pack_and_kill(20, 1);
  ASSERT_TRUE(killed_);
  std::filesystem::remove(dir_ / "pack" / "dense.bin");
  ASSERT_TRUE(pack("pack"));
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_THAT(notes_[0], HasSubstr("gone or changed"));
  EXPECT_EQ(read_directory(dir_ / "pack"), read_directory(dir_ / "whole"));
}

TEST_F(Resume, WhatHasChangedMeanwhileIsWrittenAgain) {
  ASSERT_TRUE(pack("whole"));
  for (const unsigned jobs : {1u, 3u}) {
    std::filesystem::remove_all(dir_ / "pack");
    pack_and_kill(30, jobs);
    ASSERT_TRUE(killed_);
    // A byte of every expert file and of the dense one: those of blobs that the journal has among them.
    for (const auto& entry : std::filesystem::directory_iterator(dir_ / "pack")) {
      if (entry.path().extension() != ".bin") continue;
      std::string bytes = testing::read_text(entry.path());
      for (size_t at = 100; at < bytes.size(); at += 512) bytes[at] ^= 0x10;
      testing::write_text(entry.path(), bytes);
    }
    options_.jobs = jobs;
    const auto summary = pack("pack");
    ASSERT_TRUE(summary) << summary.status().message();
    EXPECT_EQ(summary->resumed_bytes, 0u);
    ASSERT_EQ(notes_.size(), 2u);
    EXPECT_THAT(notes_[1], HasSubstr("blobs have changed since they were written"));
    EXPECT_EQ(read_directory(dir_ / "pack"), read_directory(dir_ / "whole"));
    const auto manifest = open_pack(dir_ / "pack");
    ASSERT_TRUE(manifest);
    EXPECT_EQ(verify_pack(dir_ / "pack", *manifest, 1, {})->blobs_bad, 0u);
  }
}

TEST_F(Resume, DropsATornRecord) {
  ASSERT_TRUE(pack("whole"));
  for (const size_t cut : {1u, 9u, 40u}) {
    std::filesystem::remove_all(dir_ / "pack");
    pack_and_kill(30, 1);
    ASSERT_TRUE(killed_);
    const std::string journal = testing::read_text(dir_ / "pack" / kJournalName);
    ASSERT_GT(journal.size(), cut + 24);
    testing::write_text(dir_ / "pack" / kJournalName,
                        journal.substr(0, journal.size() - cut) + std::string(cut / 2, '\x5a'));
    const auto summary = pack("pack");
    ASSERT_TRUE(summary) << summary.status().message();
    EXPECT_GT(summary->resumed_bytes, 0u);
    EXPECT_EQ(read_directory(dir_ / "pack"), read_directory(dir_ / "whole"));
  }
}

/// What else happens to the source, once, when half of the pack is written.
PackObserver halfway(std::function<void()> happens) {
  return {[happens = std::move(happens), done = false](uint64_t bytes, uint64_t total) mutable {
            if (done || bytes < total / 2) return;
            done = true;
            happens();
          },
          {}};
}

// Half of its blobs would be of other weights, with checksums that are right.
TEST_F(Resume, ASourceThatChangesMeanwhileIsRefusedAndPackedAnew) {
  const auto file = dir_ / "src" / "model.safetensors";
  const std::string before = testing::read_text(file);
  testing::write_checkpoint(dir_ / "src", {.experts = 6, .layers = 3, .value = [](auto&, int64_t i) {
                              return static_cast<float>(i % 7) / 8.0f;
                            }});
  const std::string after = testing::read_text(file);
  ASSERT_EQ(before.size(), after.size());
  ASSERT_TRUE(pack("whole"));
  testing::write_text(file, before);
  const auto time = std::filesystem::last_write_time(file);
  const auto packed = pack_checkpoint(dir_ / "src", dir_ / "pack", options_, halfway([&] {
                                        testing::write_text(file, after);
                                        std::filesystem::last_write_time(file, time + std::chrono::seconds(1));
                                      }));
  EXPECT_THAT(packed.status().message(), HasSubstr("model.safetensors: has changed while it was packed"));
  EXPECT_FALSE(open_pack(dir_ / "pack"));
  EXPECT_EQ(std::filesystem::file_size(dir_ / "pack" / kJournalName), 24u) << "its records are forgotten";
  std::filesystem::last_write_time(file, time);
  const auto summary = pack("pack");
  ASSERT_TRUE(summary) << summary.status().message();
  EXPECT_EQ(summary->resumed_bytes, 0u) << "what is there may be of the other version";
  EXPECT_EQ(read_directory(dir_ / "pack"), read_directory(dir_ / "whole"));
}

// Whoever writes to a file may put its time back; nothing but another link is the same to the kernel.
TEST_F(Resume, ASourceThatIsTouchedMeanwhileIsReadAgain) {
  const auto file = dir_ / "src" / "model.safetensors";
  const std::string before = testing::read_text(file);
  testing::write_checkpoint(dir_ / "src", {.experts = 6, .layers = 3, .value = [](auto&, int64_t i) {
                              return static_cast<float>(i % 7) / 8.0f;
                            }});
  const std::string after = testing::read_text(file);
  testing::write_text(file, before);
  const auto time = std::filesystem::last_write_time(file);
  ASSERT_TRUE(pack("whole"));
  const auto pack_while = [&](const std::function<void()>& happens) {
    PackObserver observer = halfway(happens);
    notes_.clear();
    observer.note = [this](const std::string& line) { notes_.push_back(line); };
    return pack_checkpoint(dir_ / "src", dir_ / "pack", options_, observer);
  };
  const auto linked = pack_while([&] { std::filesystem::create_hard_link(file, dir_ / "another"); });
  ASSERT_TRUE(linked) << linked.status().message();
  EXPECT_EQ(read_directory(dir_ / "pack"), read_directory(dir_ / "whole"));
  ASSERT_THAT(notes_, SizeIs(1));
  EXPECT_THAT(notes_[0], HasSubstr("model.safetensors: has got another link"));

  std::filesystem::remove_all(dir_ / "pack");
  const auto changed = pack_while([&] {
    testing::write_text(file, after);
    std::filesystem::last_write_time(file, time);
  });
  EXPECT_THAT(changed.status().message(), HasSubstr("model.safetensors: has changed while it was packed"));
  EXPECT_FALSE(open_pack(dir_ / "pack"));
  EXPECT_EQ(std::filesystem::file_size(dir_ / "pack" / kJournalName), 24u) << "its records are forgotten";
}

// All that is left to do then is to remove the journal.
TEST_F(Resume, AKillBehindTheManifestLeavesAWholePack) {
  ASSERT_TRUE(pack("pack"));
  testing::write_text(dir_ / "pack" / kJournalName, std::string(24, 'x'));
  testing::write_text(dir_ / "pack" / kSharesName, "1 .\n");
  const auto files = read_directory(dir_ / "pack");
  const auto manifest = open_pack(dir_ / "pack");
  ASSERT_TRUE(manifest) << manifest.status().message();
  EXPECT_EQ(verify_pack(dir_ / "pack", *manifest, 1, {})->blobs_bad, 0u);
  EXPECT_THAT(pack("pack").status().message(), HasSubstr("already holds a pack"));
  EXPECT_EQ(read_directory(dir_ / "pack"), files) << "it is not touched";
}

TEST_F(Resume, ASourceThatIsCutMeanwhileHasChanged) {
  const auto file = dir_ / "src" / "model.safetensors";
  const auto packed = pack_checkpoint(dir_ / "src", dir_ / "pack", options_,
                                      halfway([&] { std::filesystem::resize_file(file, 1000); }));
  EXPECT_THAT(packed.status().message(), HasSubstr("has changed while it was packed"));
}

// Workers read the config of the manifest, the orchestrator the small files: both are as when packing began.
TEST_F(Resume, SmallFilesThatChangeMeanwhileAreAsTheyWere) {
  ASSERT_TRUE(pack("whole"));
  const auto packed = pack_checkpoint(dir_ / "src", dir_ / "pack", options_, halfway([&] {
                                        for (const char* name : {"config.json", "generation_config.json",
                                                                 "tokenizer.json", "tokenizer_config.json"})
                                          testing::write_text(dir_ / "src" / name, "{}");
                                      }));
  ASSERT_TRUE(packed) << packed.status().message();
  EXPECT_EQ(read_directory(dir_ / "pack"), read_directory(dir_ / "whole"));
  const auto manifest = open_pack(dir_ / "pack");
  ASSERT_TRUE(manifest) << manifest.status().message();
  EXPECT_EQ(testing::read_text(dir_ / "pack" / "config.json"), manifest->config_json);
}

// An orchestrator takes the chat template and the defaults of sampling that are in the pack, whatever the manifest
// lists.
TEST_F(Resume, NoSmallFileOfAnEarlierSourceStays) {
  std::filesystem::remove(dir_ / "src" / "generation_config.json");
  ASSERT_TRUE(pack("whole"));
  pack_and_kill(30, 1);
  ASSERT_TRUE(killed_);
  // As if killed a little later.
  testing::write_text(dir_ / "pack" / "chat_template.jinja", "of another model");
  testing::write_text(dir_ / "pack" / "generation_config.json", "{\"temperature\": 0.1}");
  ASSERT_TRUE(pack("pack"));
  EXPECT_EQ(read_directory(dir_ / "pack"), read_directory(dir_ / "whole"));
}

TEST_F(Resume, TwoPackersDoNotShareADirectory) {
  std::filesystem::create_directory(dir_ / "pack");
  const auto held = Journal::lock(dir_ / "pack");
  ASSERT_TRUE(held);
  options_.spread = {{dir_ / "other-drive", 1}};
  EXPECT_THAT(pack("pack").status().message(), HasSubstr("another process is packing"));
  EXPECT_THAT(read_directory(dir_ / "pack"), SizeIs(1)) << "nothing changes where the other one works";
  EXPECT_FALSE(std::filesystem::exists(dir_ / "other-drive"));
}

// One of two has opened the journal when the other one finishes and removes it.
TEST_F(Resume, APackThatIsFinishedMeanwhileStays) {
  std::filesystem::create_directory(dir_ / "pack");
  std::optional<Result<File>> other;
  const auto packed = pack_checkpoint(dir_ / "src", dir_ / "pack", options_, halfway([&] {
                                        other.emplace(File::open_for_writing(dir_ / "pack" / kJournalName));
                                      }));
  ASSERT_TRUE(packed) << packed.status().message();
  ASSERT_TRUE(other && *other);
  EXPECT_TRUE(*(**other).try_lock()) << "the lock alone does not tell";
  EXPECT_FALSE((**other).has_a_name());
  EXPECT_THAT(pack("pack").status().message(), HasSubstr("already holds a pack"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "pack" / kJournalName));
}

// A kill between the two would leave files of a pack that no journal knows any more.
TEST_F(Resume, AJournalOfAnotherPackStaysUntilItsFilesAreGone) {
  pack_and_kill(30, 1);
  ASSERT_TRUE(killed_);
  const std::string before = testing::read_text(dir_ / "pack" / kJournalName);
  {
    auto held = Journal::lock(dir_ / "pack");
    ASSERT_TRUE(held);
    auto journal = Journal::open(std::move(*held), 4711, Manifest());
    ASSERT_TRUE(journal);
    EXPECT_TRUE(journal->restarted());
    EXPECT_THAT(journal->finished(), SizeIs(0));
    EXPECT_EQ(testing::read_text(dir_ / "pack" / kJournalName), before);
    ASSERT_TRUE(journal->clear().is_ok());
    EXPECT_EQ(std::filesystem::file_size(dir_ / "pack" / kJournalName), 24u);
  }
}

TEST_F(Resume, ALockThatCannotBeTakenIsNoOtherPacker) {
  auto file = File::open_for_writing(dir_ / "lock");
  ASSERT_TRUE(file);
  EXPECT_TRUE(*file->try_lock());
  const File moved = std::move(*file);
  EXPECT_EQ(file->try_lock().status().code(), Code::kIo) << "a descriptor that is none";  // NOLINT
}

TEST_F(Resume, OfWhatCannotBePackedNothingStays) {
  testing::write_checkpoint(dir_ / "src", {.experts = 6, .layers = 3, .value = [](auto& name, int64_t i) {
                              const bool last = name.find("layers.2.") != name.npos && i == 3;
                              return last ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
                            }});
  std::filesystem::create_directory(dir_ / "other-drive");
  options_.spread = {{dir_ / "other-drive", 1}};
  const auto packed = pack("pack");
  EXPECT_THAT(packed.status().message(), HasSubstr("not a number"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "pack"));
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "other-drive"));
}

TEST_F(Resume, WithoutRoomItSaysWhatIsLeft) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit small{1000, 1000};
    std::signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &small) != 0) _exit(2);
    const auto packed = pack("pack");
    const std::string says = packed ? "" : packed.status().message();
    _exit(says.find("holds an unfinished pack, which the same command continues") != says.npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(pack("pack"));
}

}  // namespace
}  // namespace moestro::store
