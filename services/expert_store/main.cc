// moestro-store: owns the weights of one host and shares them with its workers.

#include <linux/capability.h>

#include <atomic>
#include <csignal>
#include <iostream>

#include "common/exit_code.h"
#include "common/fault_point.h"
#include "common/log.h"
#include "common/log_format.h"
#include "common/machine/capability.h"
#include "common/machine/supervisor.h"
#include "services/expert_store/options.h"
#include "store/server/store_server.h"

namespace {

std::atomic<bool> stop{false};
void on_signal(int) { stop.store(true, std::memory_order_relaxed); }

int fail(const moestro::Status& status, int code) {
  std::cerr << "moestro-store: " << status.message() << "\n";
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  using moestro::store::StoreServer;
  auto parsed = moestro::store::parse_options(argc, argv);
  if (parsed.exit_code >= 0) return parsed.exit_code;
  if (const auto status = moestro::log::init("moestro-store", parsed.options.log_level); !status)
    return fail(status, 2);
  if (const auto status = moestro::log::set_format(parsed.options.log_format); !status) return fail(status, 2);
  if (const auto status = moestro::fault::arm(parsed.options.fault_points); !status) return fail(status, 2);
  if (const auto status = moestro::machine::end_with_supervisor(); !status) return fail(status, 1);
  moestro::machine::raise_capability(
      CAP_IPC_LOCK);  // to register the arena as read buffers; without it reads cost more CPU
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  auto server = StoreServer::start(std::move(parsed.options.store), stop);
  if (!server) return stop.load() ? 0 : fail(server.status(), moestro::exit_code_of(server.status()));
  moestro::log::info("ready at {}", (*server)->endpoint());
  if (const auto status = (*server)->run(stop); !status) return fail(status, 1);
  return 0;
}
