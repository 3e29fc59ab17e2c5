// moestro-orchestrator: the request plane of one model.

#include <iostream>

#include "common/exit_code.h"
#include "common/log.h"
#include "common/log_format.h"
#include "common/machine/supervisor.h"
#include "services/orchestrator/options.h"
#include "store/pack/copied_files.h"

int main(int argc, char** argv) {
  const auto line = moestro::orchestrator::parse_command_line(argc, argv);
  if (!line.options) return line.exit_code;
  moestro::Status status = moestro::log::init("moestro-orchestrator", line.log_level);
  if (status.is_ok()) status = moestro::log::set_format(line.log_format);
  if (status.is_ok()) status = moestro::machine::end_with_supervisor();
  // The orchestrator knows nothing of packs: it reads their copies of the checkpoint's files, and here they are
  // checked.
  if (status.is_ok()) status = moestro::store::check_copied_files(line.options->pack);
  if (status.is_ok()) status = run_orchestrator(*line.options);
  if (status.is_ok()) return 0;
  std::cerr << "moestro-orchestrator: " << status.message() << "\n";
  return moestro::exit_code_of(status);
}
