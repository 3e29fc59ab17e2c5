#include "tests/state/redis_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <thread>

#include "common/check.h"

namespace moestro::test {
namespace {

/// Where PATH has redis-server; empty: nowhere.
std::string program() {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (::access((folder + "/redis-server").c_str(), X_OK) == 0) return folder + "/redis-server";
  return {};
}

sockaddr_in local(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = local(0);
  socklen_t size = sizeof address;
  const bool bound = ::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  ::close(fd);
  MOESTRO_CHECK(bound, "there is a free port");
  return ntohs(address.sin_port);
}

}  // namespace

bool RedisServer::is_installed() { return !program().empty(); }

RedisServer::RedisServer(std::vector<std::string> settings) : settings_(std::move(settings)), port_(free_port()) {
  start();
}

RedisServer::~RedisServer() { kill(); }

void RedisServer::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void RedisServer::start() {
  for (int tries = 0;; ++tries) {
    std::vector<std::string> words{
        program(), "--bind", "127.0.0.1",    "--port", std::to_string(port_), "--dir",  dir_.path().string(),
        "--save",  "",       "--appendonly", "yes",    "--appendfsync",       "always", "--daemonize",
        "no"};
    words.insert(words.end(), settings_.begin(), settings_.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_ = ::fork();
    MOESTRO_CHECK(pid_ >= 0, "there can be another process");
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int null = ::open("/dev/null", O_RDWR);
      ::dup2(null, 1);
      ::dup2(null, 2);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
      if (answers()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    MOESTRO_CHECK(tries < 5, "redis-server starts");  // another program may have taken the port meanwhile
    if (tries > 0) port_ = free_port();
  }
}

/// PONG, or that it wants a password: while it reads its file it says LOADING.
bool RedisServer::answers() const {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = local(port_);
  char answer[6] = {};
  const bool well = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                    ::send(fd, "PING\r\n", 6, MSG_NOSIGNAL) == 6 && ::recv(fd, answer, 5, MSG_WAITALL) == 5 &&
                    (std::string(answer) == "+PONG" || std::string(answer) == "-NOAU");
  ::close(fd);
  return well;
}

}  // namespace moestro::test
