#include "common/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

#include "common/dtype.h"
#include "common/exit_code.h"
#include "tests/support/code_name.h"

namespace moestro {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return invalid_argument("odd");
  return n / 2;
}

Result<int> quarter(int n) {
  MOESTRO_ASSIGN_OR_RETURN(int h, half(n));
  return half(h);
}

TEST(Status, CarriesCodeMessageAndContext) {
  const Status s = io_error("open /a", ENOSPC).with_context("pack");
  EXPECT_FALSE(s.is_ok());
  EXPECT_EQ(s.code(), Code::kIo);
  EXPECT_EQ(s.message(), "pack: open /a: No space left on device");
  EXPECT_TRUE(Status::ok().with_context("x").is_ok());
  EXPECT_EQ(Status::ok().message(), "");
}

TEST(Status, MacrosReturnTheFirstError) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).status().message(), "odd");
  EXPECT_EQ(quarter(3).status().code(), Code::kInvalidArgument);
}

TEST(ExitCode, SaysWhetherAnotherStartMayHelp) {
  EXPECT_EQ(exit_code_of(Status::ok()), 0);
  for (const Status& s : {invalid_argument("x"), not_found("x"), unsupported("x"), corrupt("x")})
    EXPECT_EQ(exit_code_of(s), 2) << test::code_name(s.code());
  for (const Status& s : {io_error("x"), exhausted("x"), unavailable("x"), cancelled("x"), internal_error("x")})
    EXPECT_EQ(exit_code_of(s), 1) << test::code_name(s.code());
}

TEST(Status, ResultHoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> r = std::make_unique<int>(7);
  std::unique_ptr<int> p = *std::move(r);
  EXPECT_EQ(*p, 7);
}

TEST(StatusDeath, ReadingTheValueOfAnErrorIsABug) {
  EXPECT_DEATH({ [[maybe_unused]] int v = half(3).value(); }, "odd");
}

TEST(DType, NamesAreReadBack) {
  for (DType d : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8, DType::kInt4, DType::kBF16In12})
    EXPECT_EQ(parse_dtype(dtype_name(d)).value(), d);
  EXPECT_EQ(parse_dtype("fp6").status().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace moestro
