// moestro-worker: computes a model's steps with weights from the expert store.

#include <cstdio>

#include "common/exit_code.h"
#include "common/fault_point.h"
#include "common/log.h"
#include "common/log_format.h"
#include "common/machine/supervisor.h"
#include "services/worker/run_worker.h"

int main(int argc, char** argv) {
  const auto line = moestro::worker::parse_command_line(argc, argv);
  if (!line.options) return line.exit_code;
  moestro::Status status = moestro::log::init("moestro-worker", line.options->log_level);
  if (status.is_ok()) status = moestro::log::set_format(line.options->log_format);
  if (status.is_ok()) status = moestro::fault::arm(line.options->fault_points);
  if (status.is_ok()) status = moestro::machine::end_with_supervisor();
  if (status.is_ok()) status = moestro::worker::run_worker(*line.options);
  if (status.is_ok()) return 0;
  std::fprintf(stderr, "moestro-worker: %s: %s\n", line.options->name.c_str(), status.message().c_str());
  return moestro::exit_code_of(status);
}
