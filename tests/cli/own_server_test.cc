// How `moestro top` finds the orchestrator of a run directory.

#include "services/cli/instance/own_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/temp_dir.h"

namespace moestro::cli {
namespace {

using ::testing::HasSubstr;

class OwnServer : public ::testing::Test {
 protected:
  Result<Server> server(const std::string& ca_file = "") {
    ServerOptions options;
    options.ca_file = ca_file;
    config::BoxConfig box;
    MOESTRO_RETURN_IF_ERROR(read_box_in_effect(dir_.path(), box));
    return own_server(box, dir_.path(), options);
  }
  std::string origin() {
    const auto found = server();
    return found ? found->url.origin() : found.status().message();
  }
  test::TempDir dir_;
};

TEST_F(OwnServer, IsWhereItIsByDefaultWithoutAFile) {
  EXPECT_EQ(origin(), "http://127.0.0.1:8080");
  test::write_file(dir_ / "http.port", "9123\n");
  EXPECT_EQ(origin(), "http://127.0.0.1:9123");
}

TEST_F(OwnServer, SpeaksHttpsWithTheCertificateOfItsFile) {
  test::write_file(dir_ / "box.yaml",
                   "orchestrator:\n  http: 0.0.0.0:0\n  tls_cert: /etc/own.crt\n  tls_key: /etc/own.key\n");
  test::write_file(dir_ / "http.port", "9123\n");
  const auto found = server();
  ASSERT_TRUE(found) << found.status().message();
  EXPECT_EQ(found->url.origin(), "https://127.0.0.1:9123");
  EXPECT_EQ(found->access.certificate, "/etc/own.crt");
  const auto trusted = server("/etc/ca.pem");
  ASSERT_TRUE(trusted);
  EXPECT_EQ(trusted->access.certificate, "") << "whoever names what to trust is asked for the address";
  EXPECT_EQ(trusted->access.ca_file, "/etc/ca.pem");
}

TEST_F(OwnServer, AFileThatCannotBeReadIsNamed) {
  test::write_file(dir_ / "box.yaml", "orchestrator:\n  from_the_future: 1\n");
  EXPECT_THAT(origin(), HasSubstr("box.yaml line 2"));
  test::write_file(dir_ / "box.yaml", "orchestrator:\n  tls_cert: /etc/own.crt\n");
  EXPECT_THAT(origin(), HasSubstr("tls-key"));
}

}  // namespace
}  // namespace moestro::cli
