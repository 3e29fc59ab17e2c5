// `moestro batch results` against a server of a few lines: which files it writes, and how it exits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/run_moestro.h"
#include "tests/cli/temp_dir.h"
#include "tests/cli/tiny_server.h"

namespace moestro::test {
namespace {

using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

class BatchFetch : public testing::Test {
 protected:
  BatchFetch() : server_([this](const TinyRequest& r) { return answer(r); }) {}
  TinyReply answer(const TinyRequest& r) const {
    if (r.path == "/v1/files/file-o/content") return {200, "output\n"};
    if (r.path == "/v1/files/file-e/content") return {200, "errors\n"};
    return {200, R"({"id":"batch_1","status":")" + status_ + R"(","output_file_id":)" + output_ +
                     R"(,"error_file_id":)" + errors_ + R"(,"errors":)" + why_ + "}"};
  }
  Ran fetch(const std::string& output, const std::string& errors, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{"batch", "results", "batch_1", "--url", server_.url(), "-o", output};
    if (!errors.empty()) words.insert(words.end(), {"--errors", errors});
    words.insert(words.end(), more.begin(), more.end());
    return run_moestro(words, "");
  }
  std::string at(const std::string& name) const { return (dir_ / name).string(); }

  TempDir dir_;
  std::string status_ = "completed", output_ = R"("file-o")", errors_ = R"("file-e")", why_ = "null";
  TinyServer server_;
};

TEST_F(BatchFetch, BothFilesAreWritten) {
  const Ran ran = fetch(at("o"), at("e"));
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(read_file(dir_ / "o"), "output\n");
  EXPECT_EQ(read_file(dir_ / "e"), "errors\n");
}

TEST_F(BatchFetch, OneFileForBothIsRefusedHoweverItIsSpelled) {
  fs::create_directory(dir_ / "d");
  fs::create_directory_symlink(dir_.path(), dir_ / "link");
  for (const std::string& other : {at("o"), at("d/../o"), at("link/o"), at("./o"), dir_.path().string() + "//o"}) {
    for (const auto& [output, errors] : {std::pair(at("o"), other), std::pair(other, at("o"))}) {
      const Ran ran = fetch(output, errors);
      EXPECT_EQ(ran.exit_code, 2) << other;
      EXPECT_THAT(ran.err, HasSubstr("--output and --errors are the same file, " + output + "; give two"));
    }
  }
  EXPECT_EQ(fetch(at("e.part"), at("e")).exit_code, 2) << "errors are first written there";
  EXPECT_EQ(server_.connections(), 0);
  EXPECT_FALSE(fs::exists(dir_ / "o"));
}

TEST_F(BatchFetch, AFileWithoutLinesIsEmptyAndReplacesAnOlderOne) {
  write_file(dir_ / "o", "older\n");
  output_ = "null";
  const Ran ran = fetch(at("o"), at("e"));
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr(at("o") + " is empty: no line succeeded"));
  EXPECT_EQ(read_file(dir_ / "o"), "");
  EXPECT_EQ(read_file(dir_ / "e"), "errors\n");
}

TEST_F(BatchFetch, AFailedBatchIsAnError) {
  write_file(dir_ / "o", "older\n");
  status_ = "failed", output_ = errors_ = "null";
  const Ran ran = fetch(at("o"), "");
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.err, HasSubstr("moestro: the batch has failed"));
  EXPECT_EQ(read_file(dir_ / "o"), "");
}

TEST_F(BatchFetch, OneWhoseResultsWereDroppedHasNone) {
  status_ = "cancelled", output_ = errors_ = "null";
  why_ = R"({"data":[{"code":"results_dropped","message":"as drop_results asks"}]})";
  const Ran ran = fetch(at("o"), at("e"));
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.out, HasSubstr("as drop_results asks"));
  EXPECT_THAT(ran.err, HasSubstr("the batch has no results: they were dropped"));
  EXPECT_THAT(ran.err, Not(HasSubstr("no line")));
}

TEST_F(BatchFetch, AFileThatCannotBeWrittenIsSaidBeforeTheWait) {
  status_ = "in_progress";  // and stays so
  const Ran missing = fetch(at("none/o"), "", {"--wait"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("cannot write " + at("none/o")));
  const Ran directory = fetch(at("o"), dir_.path().string(), {"--wait"});
  EXPECT_EQ(directory.exit_code, 1);
  EXPECT_THAT(directory.err, HasSubstr("cannot write " + dir_.path().string() + ": a directory"));
  EXPECT_EQ(server_.connections(), 0);
  EXPECT_TRUE(fs::is_empty(dir_.path()));
}

}  // namespace
}  // namespace moestro::test
