// Copies and operations on a CUDA device, each with its ceiling.
//
//   moestro_gpu_bench [--device 0] [--plugin FILE] [--cublas FILE] [--chunk BYTES] [--repeats 15] [--check] [--json]
//
// Exits with 0; 1 where a figure could not be measured, which its line says; 77 where there is no device.

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "kernels/devices/device_registry.h"
#include "services/command_line/command_line.h"
#include "tests/bench/gpu/cublas.h"
#include "tests/bench/gpu/report.h"

namespace moestro::bench {
namespace {

constexpr int kNoDevice = 77;

struct Options {
  int32_t device = 0;
  std::string plugin = kernels::cuda_plugin_path().string(), cublas;
  uint64_t chunk = GpuSizes().chunk_bytes;
  int repeats = GpuSizes().repeats;
  bool check = false, json = false;
};

int run(const Options& o) {
  const auto devices = kernels::probe_cuda(o.plugin);
  if (!devices.is_ok() || static_cast<size_t>(o.device) >= devices->size()) {
    std::fprintf(stderr, "moestro_gpu_bench: %s\n",
                 devices.is_ok() ? "no such device" : devices.status().message().c_str());
    return kNoDevice;
  }
  const auto functions = kernels::cuda_functions(o.plugin);
  if (!functions.is_ok() || (*functions)->use_device(o.device) != 0) {
    std::fprintf(stderr, "moestro_gpu_bench: the device cannot be used: %s\n", functions.status().message().c_str());
    return 1;
  }
  GpuBench bench{**functions, o.check ? GpuSizes::tiny() : GpuSizes(), nullptr, ""};
  if (!o.check) {
    bench.sizes.chunk_bytes = o.chunk;
    bench.sizes.repeats = o.repeats;
    if (auto cublas = load_cublas(o.cublas); cublas.is_ok()) {
      bench.dense = cublas->product;
      bench.dense_name = cublas->name;
    } else {
      std::fprintf(stderr, "moestro_gpu_bench: no cuBLAS: %s\n", cublas.status().message().c_str());
    }
  }
  const kernels::CudaDevice& device = (*devices)[static_cast<size_t>(o.device)];
  const std::string name =
      device.name + ", compute capability " + std::to_string(device.major) + "." + std::to_string(device.minor);
  if (!o.json) std::printf("%s\n%s\n", name.c_str(), head_text().c_str());
  bool whole = true;
  const std::vector<GpuRow> rows = run_gpu_bench(bench, [&](const GpuRow& row) {
    whole = whole && row.failed.empty();
    std::fprintf(o.json ? stderr : stdout, "%s\n", row_text(row).c_str());
    std::fflush(stdout);
  });
  if (o.json) std::fputs(rows_json(name, rows).c_str(), stdout);
  return whole ? 0 : 1;
}

}  // namespace
}  // namespace moestro::bench

int main(int argc, char** argv) {
  moestro::bench::Options o;
  moestro::command_line::App app("Copies and operations on a CUDA device, each with its ceiling",
                                 "moestro_gpu_bench");
  app.add_option("--device", o.device, "Which")->check(moestro::command_line::Range(0, 63))->capture_default_str();
  app.add_option("--plugin", o.plugin, "The CUDA plugin")->capture_default_str();
  app.add_option("--cublas", o.cublas, "libcublas.so to compare with; default: what the loader finds");
  app.add_option("--chunk", o.chunk, "Bytes of a chunk of a copy; default: as experts are carried")
      ->check(moestro::command_line::Range(uint64_t{4096}, uint64_t{1} << 30));
  app.add_option("--repeats", o.repeats, "Of each measurement")
      ->check(moestro::command_line::Range(1, 1000))
      ->capture_default_str();
  app.add_flag("--check", o.check, "Tiny sizes: whether all of it works");
  app.add_flag("--json", o.json, "Machine-readable; the table goes to stderr");
  if (const auto code = moestro::command_line::parse_program_line(app, argc, argv)) return *code;
  return moestro::bench::run(o);
}
