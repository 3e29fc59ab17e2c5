#include "common/config/yaml_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/config/box_config.h"
#include "tests/support/places.h"

namespace moestro::config {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Loaded {
  BoxConfig box;
  std::string error;
};

Loaded load(const std::string& text) {
  Loaded result;
  Schema schema = box_schema(result.box);
  const Status status = load_yaml(text, "box.yaml", schema);
  if (!status.is_ok()) result.error = status.message();
  return result;
}

TEST(YamlFile, SectionsOfKeys) {
  const Loaded loaded = load(
      "# one box\nmodel:\n  pack: build/packs/demo\nstore:\n  dram: 4GiB\n  io: \"pread\"\nworkers: {count: "
      "2, deterministic: true}\n");
  ASSERT_EQ(loaded.error, "");
  EXPECT_EQ(loaded.box.model.pack, "build/packs/demo");
  EXPECT_EQ(loaded.box.store.dram, Bytes{4ull << 30});
  EXPECT_EQ(loaded.box.store.io, "pread");
  EXPECT_EQ(loaded.box.workers.count, 2);
  EXPECT_TRUE(loaded.box.workers.deterministic);
}

TEST(YamlFile, AnEmptyFileOrSectionChangesNothing) {
  for (const char* text : {"", "# nothing\n", "store:\n", "store:\n  # dram: 4GiB\nworkers:\n"})
    EXPECT_EQ(load(text).error, "") << text;
}

TEST(YamlFile, ErrorsNameFileLineAndKey) {
  EXPECT_EQ(load("store:\n  io: auto\n  drm: 4GiB\n").error,
            "box.yaml line 3: unknown key 'store.drm'; did you mean 'store.dram'?");
  EXPECT_EQ(load("store:\n  dram: 4 GB RAM\n").error,
            "box.yaml line 2: store.dram: '4 GB RAM' is not a size: write it as 512MiB, 4GiB or 4G");
  EXPECT_EQ(load("\n\nworkers:\n  count: 1000\n").error,
            "box.yaml line 4: workers.count: '1000' is above the largest allowed, 64");
  EXPECT_EQ(
      load("stores:\n  dram: 4GiB\n").error,
      "box.yaml line 1: unknown section 'stores'; sections are: model, store, workers, orchestrator, history, run");
  EXPECT_EQ(load("store:\n  dram: [4GiB]\n").error, "box.yaml line 2: store.dram: needs one value");
  EXPECT_EQ(load("store:\n  dram:\n").error, "box.yaml line 2: store.dram: needs one value");
  EXPECT_EQ(load("model:\n  aliases: {a: b}\n").error, "box.yaml line 2: model.aliases: needs a value or a list");
  EXPECT_EQ(load("model:\n  aliases: [[a]]\n").error,
            "box.yaml line 2: model.aliases: a list of plain values is needed");
  EXPECT_EQ(load("store: 4GiB\n").error, "box.yaml line 1: section 'store' must hold lines of `key: value`");
  EXPECT_EQ(load("- store\n").error, "box.yaml line 1: must hold sections of `key: value`");
  EXPECT_EQ(load("store:\n  dram: 1GiB\n  dram: 2GiB\n").error,
            "box.yaml line 3: 'store.dram' stands here a second time");
  EXPECT_EQ(load("store:\n  io: auto\nstore:\n  io: auto\n").error,
            "box.yaml line 3: 'store' stands here a second time");
  EXPECT_EQ(load("? [a, b]\n: 1\n").error, "box.yaml line 1: a key must be a plain word");
}

TEST(YamlFile, WhatIsNotYamlIsRefusedWithItsLine) {
  EXPECT_THAT(load("store:\n  dram: 4GiB\n io: auto\n").error, HasSubstr("not YAML"));
  EXPECT_THAT(load("store: {dram: 4GiB\n").error, StartsWith("box.yaml line "));
  EXPECT_THAT(load("store: *nowhere\n").error, HasSubstr("not YAML"));
  EXPECT_THAT(load(std::string("\0\xff\xfe\x01", 4)).error, HasSubstr("box.yaml"));
  EXPECT_THAT(load("a: 1\n---\nb: 2\n").error, HasSubstr("2 YAML documents"));
  EXPECT_NE(load(std::string(100'000, '[')).error, "");
}

TEST(YamlFile, FilesThatAreMissingOrHugeAreRefused) {
  BoxConfig box;
  Schema schema = box_schema(box);
  EXPECT_THAT(load_yaml_file("/nowhere/box.yaml", schema).message(), HasSubstr("/nowhere/box.yaml"));
  EXPECT_THAT(load_yaml_file("/", schema).message(), StartsWith("config file /"));
}

TEST(YamlFile, TheExamplesLoad) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_dir() / "configs")) {
    if (entry.path().extension() != ".yaml") continue;
    BoxConfig box;
    Schema schema = box_schema(box);
    EXPECT_EQ(load_yaml_file(entry.path(), schema).message(), "");
    ++files;
  }
  EXPECT_GE(files, 2);
}

}  // namespace
}  // namespace moestro::config
