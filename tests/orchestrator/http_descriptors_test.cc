// A server that has no descriptor for a connection more.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/resource.h>

#include "common/log.h"
#include "tests/orchestrator/http_server_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using ::testing::HasSubstr;

/// While it exists, this process can open nothing.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(next);
    const rlimit none{static_cast<rlim_t>(next), before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

/// What the log has said, a line at a time.
class LogPipe {
 public:
  LogPipe() {
    EXPECT_EQ(::pipe2(ends_, O_CLOEXEC), 0);
    stderr_ = ::dup(STDERR_FILENO);
    ::dup2(ends_[1], STDERR_FILENO);
    EXPECT_TRUE(log::init("test", "info").is_ok());
  }
  ~LogPipe() {
    ::dup2(stderr_, STDERR_FILENO);
    for (const int fd : {stderr_, ends_[0], ends_[1]}) ::close(fd);
  }
  /// Empty if none comes in that time.
  std::string line(std::chrono::milliseconds patience) {
    std::string text;
    pollfd fd{ends_[0], POLLIN, 0};
    for (char c = 0; c != '\n' && ::poll(&fd, 1, static_cast<int>(patience.count())) == 1; text += c)
      if (::read(ends_[0], &c, 1) != 1) break;
    return text;
  }

 private:
  int ends_[2] = {-1, -1}, stderr_ = -1;
};

TEST_F(HttpServerTest, SaysOnceThatItCanAcceptNobodyAndOnceThatItIsOver) {
  LogPipe log;
  serve({}, [](const HttpRequest&, const std::shared_ptr<Exchange>& e) { e->respond(200, "text/plain", "here"); });
  RawClient client;
  {
    const NoDescriptors none;
    client.connect(server_->port());
    client.say(kGet);
    EXPECT_THAT(log.line(kPatience), HasSubstr("http: no connection can be accepted: Too many open files; it is tried "
                                               "again every 50 ms"));
    EXPECT_EQ(log.line(std::chrono::milliseconds(250)), "") << "it has been tried again meanwhile";
  }
  EXPECT_THAT(client.hear(), HasSubstr("here"));
  EXPECT_THAT(log.line(kPatience), HasSubstr("http: connections are accepted again, after "));
  EXPECT_EQ(ask(kGet).substr(0, 12), "HTTP/1.1 200");
  EXPECT_EQ(log.line(std::chrono::milliseconds(0)), "");
  end();
}

}  // namespace
}  // namespace moestro::orchestrator
