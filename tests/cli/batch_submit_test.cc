// `moestro batch submit` against a server of a few lines: what it asks for, what it says, and how it exits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <optional>

#include "tests/cli/run_moestro.h"
#include "tests/cli/temp_dir.h"
#include "tests/cli/tiny_server.h"

namespace moestro::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class BatchSubmit : public testing::Test {
 protected:
  BatchSubmit() : server_([this](const TinyRequest& r) { return answer(r); }) {
    write_file(dir_ / "in.jsonl", R"({"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{}})");
  }
  TinyReply answer(const TinyRequest& r) {
    if (r.path == "/v1/files") return {200, R"({"id":"file_1"})"};
    const std::lock_guard lock(mutex_);
    if (r.method == "DELETE") return removed_.push_back(r.path), of_removal_;
    if (r.method == "POST") order_ = r.body;
    if (r.method == "POST" && of_order_) return *of_order_;
    return {200, R"({"id":"batch_1","status":"completed","request_counts":{"total":12,"completed":)" +
                     std::to_string(12 - failed_) + R"(,"failed":)" + std::to_string(failed_) + "}}"};
  }
  Ran submit(const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{"batch", "submit", (dir_ / "in.jsonl").string(), "--url", server_.url()};
    words.insert(words.end(), more.begin(), more.end());
    return run_moestro(words, "");
  }

  TempDir dir_;
  std::mutex mutex_;
  std::string order_;
  std::vector<std::string> removed_;
  std::optional<TinyReply> of_order_;  ///< instead of a batch
  TinyReply of_removal_{200, R"({"id":"file_1","object":"file","deleted":true})"};
  int failed_ = 0;
  TinyServer server_;
};

TEST_F(BatchSubmit, TheEndpointComesFromTheLines) {
  EXPECT_EQ(submit().exit_code, 0);
  EXPECT_THAT(order_, HasSubstr(R"("endpoint":"/v1/chat/completions")"));
  EXPECT_EQ(submit({"--endpoint", "/v1/completions"}).exit_code, 0);
  EXPECT_THAT(order_, HasSubstr(R"("endpoint":"/v1/completions")"));
}

TEST_F(BatchSubmit, WaitExitsWithAnErrorIfALineFailed) {
  const Ran good = submit({"--wait"});
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_THAT(good.out, HasSubstr("12 of 12 lines done"));
  EXPECT_THAT(good.out, Not(HasSubstr("failed")));
  failed_ = 3;
  const Ran bad = submit({"--wait"});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_THAT(bad.out, HasSubstr("completed: 12 of 12 lines done, 3 of them failed"));
  EXPECT_THAT(bad.err, HasSubstr("3 of 12 lines failed"));
  EXPECT_EQ(submit().exit_code, 0) << "who does not wait is not told how it ends";
}

TEST_F(BatchSubmit, TheUploadOfARefusedOrderIsDeleted) {
  for (const int status : {400, 507}) {
    of_order_ = TinyReply{status, R"({"error":{"message":"no such window"}})"};
    const Ran ran = submit({"--wait"});
    EXPECT_EQ(ran.exit_code, 1);
    EXPECT_EQ(ran.err, "moestro: the server answers " + std::to_string(status) + ": no such window\n");
  }
  EXPECT_THAT(removed_, ElementsAre("/v1/files/file_1", "/v1/files/file_1"));
}

TEST_F(BatchSubmit, TheUploadOfALostOrderIsDeletedUnlessABatchUsesIt) {
  of_order_ = TinyReply{.status = 0, .hang_up = true};
  EXPECT_EQ(submit().exit_code, 1);
  EXPECT_THAT(removed_, ElementsAre("/v1/files/file_1"));
  of_removal_ = {409, R"({"error":{"message":"batch_1 uses it"}})"};
  const Ran ran = submit();
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.err, HasSubstr("the uploaded file_1 is still on the server: the server answers 409: batch_1 uses"));
  EXPECT_THAT(ran.err, HasSubstr(": no answer"));
}

TEST_F(BatchSubmit, TextThatIsNotUtf8IsRefused) {
  const auto refused = [&](const std::vector<std::string>& more, const std::string& why) {
    const Ran ran = submit(more);
    EXPECT_EQ(ran.exit_code, 2) << ran.err;
    EXPECT_EQ(ran.err, "moestro: " + why + " (see moestro batch submit --help)\n");
  };
  const std::string why = "not UTF-8 (byte 2 cannot be there); convert it first, with iconv for one";
  refused({"--metadata", "a=\xff"}, "--metadata: " + why);
  refused({"--metadata", "a=b", "--metadata", "b=\xff"}, "--metadata: " + why);
  refused({"--window", "9h\xff"}, "--window: " + why);
  refused({"--metadata", "a"}, "--metadata: 'a' is not NAME=TEXT");
  EXPECT_EQ(server_.connections(), 0) << "nothing is sent";
}

TEST_F(BatchSubmit, MetadataIsSent) {
  EXPECT_EQ(submit({"--metadata", "a=é=1", "--metadata", "b="}).exit_code, 0);
  EXPECT_THAT(order_, HasSubstr(R"("metadata":{"a":"é=1","b":""})"));
}

TEST_F(BatchSubmit, TheUploadOfABatchStays) {
  EXPECT_EQ(submit().exit_code, 0);
  EXPECT_THAT(removed_, IsEmpty());
}

}  // namespace
}  // namespace moestro::test
