#include "orchestrator/batch/multipart.h"

#include <gtest/gtest.h>

namespace moestro::orchestrator {
namespace {

struct Form {
  std::string found;
  Status status;
  bool complete = false;
};

/// Reads `body` in pieces of `step` bytes; what is found as "name(filename)=content;".
Form read(const std::string& body, size_t step, const std::string& type = "multipart/form-data; boundary=XX") {
  Form form;
  auto reader = MultipartReader::open(type, {[&](const MultipartReader::Part& p) {
                                               form.found += ";" + p.name + "(" + p.filename + ")=";
                                               return Status::ok();
                                             },
                                             [&](std::string_view bytes) {
                                               form.found += bytes;
                                               return Status::ok();
                                             }});
  if (!reader.is_ok()) return {"", reader.status(), false};
  for (size_t at = 0; at < body.size() && form.status.is_ok(); at += step)
    form.status = reader->feed(std::string_view(body).substr(at, step));
  form.complete = reader->complete();
  return form;
}

const std::string kBody =
    "--XX\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
    "--XX\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a \\\"b\\\".jsonl\"\r\nContent-Type: "
    "x/y\r\n\r\nline\r\n--X\r\n\r\n--XY\r\n--XX\r\n"
    "Content-Disposition: form-data; name=empty\r\n\r\n\r\n--XX--\r\nrest";

TEST(MultipartTest, PiecesOfAnySizeGiveTheSame) {
  for (size_t step = 1; step <= kBody.size(); ++step) {
    const Form form = read(kBody, step);
    ASSERT_TRUE(form.status.is_ok()) << step << ": " << form.status.message();
    EXPECT_TRUE(form.complete);
    ASSERT_EQ(form.found, ";purpose()=batch;file(a \"b\".jsonl)=line\r\n--X\r\n\r\n--XY;empty()=") << step;
  }
}

TEST(MultipartTest, ABoundaryMayBeQuoted) {
  EXPECT_TRUE(read(kBody, 7, "Multipart/Form-Data; charset=x; boundary=\"XX\"").complete);
}

TEST(MultipartTest, WhatIsNoFormIsRefused) {
  EXPECT_FALSE(read(kBody, 9, "application/json").status.is_ok());
  EXPECT_FALSE(read(kBody, 9, "multipart/form-data").status.is_ok());
  EXPECT_FALSE(read(kBody, 9, "multipart/form-data; boundary=" + std::string(71, 'b')).status.is_ok());
  EXPECT_FALSE(read("--XXsomething\r\n", 5).status.is_ok());
  EXPECT_FALSE(read("--XX\r\nContent-Type: x\r\n\r\nabc", 5).status.is_ok()) << "a part without a name";
  EXPECT_FALSE(read("--XX\r\nA: " + std::string(10'000, 'a'), 100).status.is_ok()) << "headers without an end";
}

TEST(MultipartTest, ATornFormIsNotComplete) {
  for (size_t size = 0; size + 8 < kBody.size(); ++size) EXPECT_FALSE(read(kBody.substr(0, size), 11).complete) << size;
}

}  // namespace
}  // namespace moestro::orchestrator
