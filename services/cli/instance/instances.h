#pragma once
// The clusters of this user that run on this machine.

#include <filesystem>
#include <string>
#include <vector>

#include "common/status.h"
#include "services/box/places.h"
#include "services/cli/common/server_options.h"

namespace moestro::cli {

struct Instance {
  std::string name;  ///< as `moestro up --name` takes it, but for `--` in place of `/` and `:`
  std::filesystem::path run_dir;
};

// Helps of the flags that choose one of them.
inline constexpr const char* kNameOfCluster = "Name of the cluster. Default: the one that runs, if it is the only one";
inline constexpr const char* kRunDirOfCluster =
    "Run directory of the cluster. Default: that of --name, else of the only cluster that runs";

/// Those with a run directory in one of `homes` in which a program accepts connections. One that was started with a
/// --run-dir elsewhere is not found.
std::vector<Instance> find_instances(const std::vector<std::filesystem::path>& homes = box::run_homes());

/// The only one of `found`. kInvalidArgument names them if they are several, kUnavailable says how to start one.
Result<Instance> only_instance(const std::vector<Instance>& found);

/// The run directory of the running cluster of that name; where none runs, the one that `up` makes, if it is there.
/// kUnavailable: it is not; kInvalidArgument: another user could have put it there.
Result<std::filesystem::path> run_dir_of(const std::string& name,
                                         const std::vector<std::filesystem::path>& homes = box::run_homes());

/// The server of --url. Without it: that of the only instance; where none runs, whatever listens on kDefaultUrl, with
/// an error that says how to start one if nothing does. kInvalidArgument names several.
Result<Server> find_server(const ServerOptions& options,
                           const std::vector<std::filesystem::path>& homes = box::run_homes());

}  // namespace moestro::cli
