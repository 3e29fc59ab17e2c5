#include "orchestrator/http/tls_identity.h"

#include <gmock/gmock.h>

#include "common/log.h"
#include "tests/cli/temp_dir.h"
#include "tests/tls/test_identity.h"

namespace moestro::orchestrator {
namespace {

using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;

class TlsIdentityTest : public ::testing::Test {
 protected:
  TlsFiles files(const std::string& certificate, const std::string& key) const {
    return {dir_ / certificate, dir_ / key};
  }
  /// What load() says, and what the log says meanwhile.
  static std::pair<Status, std::string> load(const TlsFiles& files) {
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(log::init("test", "info").is_ok());
    const Status status = TlsIdentity::load(files).status();
    return {status, ::testing::internal::GetCapturedStderr()};
  }
  void replace(const std::string& from, const std::string& to) const {
    const auto before = std::filesystem::last_write_time(dir_ / to);
    std::filesystem::copy_file(dir_ / from, dir_ / to, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::last_write_time(dir_ / to, before + std::chrono::seconds(1));
  }
  test::TempDir dir_;
};

TEST_F(TlsIdentityTest, WhatCannotBeUsedIsSaidWithWhatToDo) {
  test::make_identity(dir_.path(), "a");
  test::make_identity(dir_.path(), "b");
  test::make_identity(dir_.path(), "locked", {.passphrase = "secret"});
  test::write_file(dir_ / "junk", "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n");
  std::filesystem::create_directory(dir_ / "folder");
  const std::tuple<TlsFiles, const char*, const char*> cases[] = {
      {files("missing", "a.key"), "missing", "No such file"},
      {files("a.crt", "missing"), "missing", "No such file"},
      {files("folder", "a.key"), "--tls-cert", "is a directory"},
      {files("junk", "a.key"), "junk", "no certificate in PEM form"},
      {files("a.key", "a.key"), "a.key", "no certificate in PEM form"},
      {files("a.crt", "a.crt"), "a.crt", "no private key in PEM form"},
      {files("a.crt", "locked.key"), "passphrase", "openssl pkey -in"},
      {files("a.crt", "b.key"), "does not belong", "made together"},
  };
  for (const auto& [given, one, other] : cases) {
    const Status status = load(given).first;
    EXPECT_FALSE(status.is_ok()) << given.certificate << given.key;
    EXPECT_THAT(status.message(), AllOf(HasSubstr(one), HasSubstr(other)));
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
}

TEST_F(TlsIdentityTest, AFileThatMayNotBeReadIsNamed) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  test::make_identity(dir_.path(), "a");
  std::filesystem::permissions(dir_ / "a.key", std::filesystem::perms::none);
  EXPECT_THAT(load(files("a.crt", "a.key")).first.message(), AllOf(HasSubstr("a.key"), HasSubstr("Permission denied")));
}

TEST_F(TlsIdentityTest, ACertificateThatIsOverIsAWarning) {
  const std::pair<int, const char*> cases[] = {{-3, "has expired"}, {5, "expires in"}, {300, ""}};
  for (const auto& [days, words] : cases) {
    test::make_identity(dir_.path(), "a", {.days = days});
    std::filesystem::permissions(dir_ / "a.key", std::filesystem::perms(0600));
    const auto [status, said] = load(files("a.crt", "a.key"));
    EXPECT_TRUE(status.is_ok()) << status.message();
    if (*words == '\0') {
      EXPECT_EQ(said, "") << days;
    } else {
      EXPECT_THAT(said, AllOf(HasSubstr("warn"), HasSubstr(words)));
    }
  }
  std::filesystem::permissions(dir_ / "a.key", std::filesystem::perms(0644));
  EXPECT_THAT(load(files("a.crt", "a.key")).second, HasSubstr("everybody on this machine can read"));
}

TEST_F(TlsIdentityTest, AReplacedCertificateIsTakenUpAndABadOneIsNot) {
  test::make_identity(dir_.path(), "a");
  test::make_identity(dir_.path(), "b");
  auto loaded = TlsIdentity::load(files("a.crt", "a.key"));
  ASSERT_TRUE(loaded.is_ok());
  TlsIdentity& identity = **loaded;
  auto now = steady_clock::now();
  const auto later = [&] { return now += TlsIdentity::kLookEvery + std::chrono::seconds(1); };
  const auto first = identity.current(later());
  EXPECT_EQ(identity.current(later()), first) << "nothing has changed";
  replace("b.crt", "a.crt");
  EXPECT_EQ(identity.current(now), first) << "it does not look at each connection";
  EXPECT_EQ(identity.current(later()), first) << "the certificate is there and its key is not yet";
  replace("b.key", "a.key");
  const auto second = identity.current(later());
  EXPECT_NE(second, first);
  std::filesystem::remove(dir_ / "a.key");
  EXPECT_EQ(identity.current(later()), second);
}

}  // namespace
}  // namespace moestro::orchestrator
