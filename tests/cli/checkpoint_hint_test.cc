#include "services/cli/common/checkpoint_hint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/temp_dir.h"
#include "tests/support/as_stranger.h"

namespace moestro::cli {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

/// While it lives, this is the working directory.
struct InDirectory {
  explicit InDirectory(const std::filesystem::path& path) { std::filesystem::current_path(path); }
  ~InDirectory() { std::filesystem::current_path(before); }
  const std::filesystem::path before = std::filesystem::current_path();
};

TEST(ShellQuoted, OnlyWhatAShellWouldChange) {
  EXPECT_EQ(shell_quoted("/models/Qwen3-30B_A3B.v1"), "/models/Qwen3-30B_A3B.v1");
  EXPECT_EQ(shell_quoted("my model"), "'my model'");
  EXPECT_EQ(shell_quoted("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(shell_quoted("~/x"), "'~/x'") << "a tilde that has come here is a name";
  EXPECT_EQ(shell_quoted(""), "''");
}

TEST(HubModel, OrganisationAndName) {
  EXPECT_EQ(hub_model("Qwen/Qwen3-30B-A3B"), "Qwen/Qwen3-30B-A3B");
  EXPECT_EQ(hub_model("https://huggingface.co/mistralai/Mixtral-8x7B-v0.1/"), "mistralai/Mixtral-8x7B-v0.1");
  for (const char* text : {"demo", "/models/demo", "./models/demo", "../demo", "a/b/c", "a/", "/b", "", "a b/c", "~/x"})
    EXPECT_EQ(hub_model(text), std::nullopt) << text;
}

TEST(Checkpoint, WhatIsNoDirectoryIsExplained) {
  const test::TempDir dir;
  EXPECT_TRUE(check_checkpoint_source(dir.path(), "p").is_ok());
  const Status model = check_checkpoint_source("Qwen/No-Such-Model", "my packs/q");
  EXPECT_EQ(model.code(), Code::kNotFound);
  EXPECT_THAT(model.message(), HasSubstr("hf download Qwen/No-Such-Model --local-dir No-Such-Model && moestro pack "
                                         "No-Such-Model -o 'my packs/q' (hf comes with"));
  const Status missing = check_checkpoint_source(dir / "none", "p");
  EXPECT_EQ(missing.message(), "there is no directory " + (dir / "none").string());
  test::write_file(dir / "model.gguf", "x");
  EXPECT_TRUE(check_checkpoint_source(dir / "model.gguf", "p").is_ok());
  test::write_file(dir / "model.bin", "x");
  EXPECT_THAT(check_checkpoint_source(dir / "model.bin", "p").message(), HasSubstr("model.bin is a file; give a GGUF"));
}

TEST(Checkpoint, WhatThisUserMayNotReadIsNotMissing) {
  const test::TempDir dir;
  std::filesystem::permissions(dir.path(), std::filesystem::perms(0755));
  const std::string home = dir / "home", source = home + "/model";
  std::filesystem::create_directories(source);
  test::write_file(source + "/config.json", "{}");
  test::write_file(home + "/model.gguf", "x");
  const auto look = [](const std::string& at) {
    const test::AsStranger stranger;
    return check_checkpoint_source(at, "p").message();
  };
  EXPECT_EQ(look(source), "");
  std::filesystem::permissions(source, std::filesystem::perms::none);
  EXPECT_THAT(look(source), HasSubstr("may not read all of it; let its owner run: chmod -R a+rX " + source));
  std::filesystem::permissions(home + "/model.gguf", std::filesystem::perms::none);
  EXPECT_THAT(look(home + "/model.gguf"), HasSubstr("chmod a+r " + home + "/model.gguf"));
  std::filesystem::permissions(home, std::filesystem::perms::none);
  EXPECT_THAT(look(source), HasSubstr("may not enter " + home));
  EXPECT_THAT(look(home + "/model.gguf"), HasSubstr("may not enter " + home));
  std::filesystem::permissions(home, std::filesystem::perms::owner_all);  // so that it can be removed
  std::filesystem::permissions(source, std::filesystem::perms::owner_all);
}

TEST(NoPack, ACheckpointIsToBePackedElsewhere) {
  const test::TempDir dir;
  const std::string checkpoint = dir / "Bob's model";
  std::filesystem::create_directory(checkpoint);
  test::write_file(checkpoint + "/config.json", "{}");
  const Status status = no_pack_at(checkpoint);
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(),
              HasSubstr("that is a checkpoint; make a pack of it first: moestro pack " + shell_quoted(checkpoint) +
                        " -o packs/Bob-s-model && moestro up --model "
                        "packs/Bob-s-model"));
}

TEST(NoPack, OtherPlaces) {
  const test::TempDir dir;
  EXPECT_THAT(no_pack_at(dir / "none").message(),
              HasSubstr("make one: moestro pack HF_DIR -o " + (dir / "none").string()));
  EXPECT_THAT(no_pack_at("Qwen/No-Such-Model").message(),
              HasSubstr("hf download Qwen/No-Such-Model --local-dir No-Such-Model && moestro pack No-Such-Model -o "
                        "packs/No-Such-Model && moestro up --model packs/No-Such-Model"));
  EXPECT_THAT(no_pack_at(dir.path()).message(),
              HasSubstr("no file 'manifest' is in it; make one: moestro pack HF_DIR -o "
                        "packs/NAME"));
  test::write_file(dir / "unfinished-pack.journal", "");
  EXPECT_THAT(no_pack_at(dir.path()).message(), HasSubstr("is unfinished; run its `moestro pack` command again"));
}

TEST(NoPack, APathThatIsWrongIsNoModelToDownload) {
  const test::TempDir dir;
  const InDirectory here(dir.path());
  std::filesystem::create_directories("packs");
  EXPECT_EQ(no_pack_at("packs/qwen3").message(),
            "no pack at packs/qwen3: there is no such directory; make one: moestro pack HF_DIR -o packs/qwen3");
  for (const char* name : {"b", "a"}) {
    std::filesystem::create_directories(std::string("packs/") + name);
    test::write_file(std::string("packs/") + name + "/manifest", "");
  }
  for (const char* path : {"packs/qwen3", "packs/qwen3/"})
    EXPECT_THAT(no_pack_at(path).message(), EndsWith("there is no such directory; there are packs/a, packs/b")) << path;
  EXPECT_THAT(no_pack_at("packs").message(), EndsWith("below it are packs/a, packs/b"));
  for (const char* name : {"c", "d", "e", "f", "g"}) {
    std::filesystem::create_directories(std::string("packs/") + name);
    test::write_file(std::string("packs/") + name + "/manifest", "");
  }
  EXPECT_THAT(no_pack_at("packs").message(), EndsWith("packs/d, packs/e and 2 more"));
  std::filesystem::create_symlink("/mnt/gone", "packs/moved");
  EXPECT_THAT(no_pack_at("packs/moved").message(), EndsWith("it is a link to /mnt/gone, which is not there"));
}

TEST(NoPack, AFileIsNoPack) {
  const test::TempDir dir;
  test::write_file(dir / "qwen3.Q4.gguf", "x");
  const std::string gguf = dir / "qwen3.Q4.gguf";
  EXPECT_THAT(no_pack_at(gguf).message(),
              EndsWith("that is a GGUF file; make a pack of it first: moestro pack " + gguf +
                       " -o packs/qwen3.Q4 && moestro up --model packs/qwen3.Q4"));
  test::write_file(dir / "box.yaml", "x");
  EXPECT_THAT(no_pack_at(dir / "box.yaml").message(), EndsWith("a pack is a directory made by `moestro pack`"));
}

}  // namespace
}  // namespace moestro::cli
