#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "common/config/box_config.h"
#include "tests/support/places.h"

namespace moestro::config {
namespace {

TEST(Reference, ThePageInTheTreeIsThatOfTheTable) {
  std::ifstream in(test::source_dir() / "docs/reference/config.md");
  std::ostringstream page;
  page << in.rdbuf();
  BoxConfig box;
  EXPECT_EQ(page.str(), reference_markdown(box_schema(box)))
      << "write it anew: moestro config --reference > docs/reference/config.md";
}

TEST(Reference, NamesEveryKeyAndItsRange) {
  BoxConfig box;
  const Schema schema = box_schema(box);
  const std::string page = reference_markdown(schema);
  for (const Row& row : schema.rows()) EXPECT_THAT(page, testing::HasSubstr("| `" + row.key + "` |"));
  EXPECT_THAT(page, testing::HasSubstr("| `workers.count` | `--workers` | whole number, 1 to 64 | `1` |"));
}

}  // namespace
}  // namespace moestro::config
