#include "common/config/box_config.h"

#include "common/dtype.h"
#include "common/step_tokens.h"

namespace moestro::config {
namespace {

// Headings of flags in --help.
constexpr const char *kModel = "Model", *kWorkers = "Workers and devices", *kKvCache = "KV cache",
                     *kStore = "Expert store", *kPrefetch = "Caching and prefetching",
                     *kServing = "HTTP, keys and TLS", *kScheduling = "Scheduling",
                     *kBatches = "Files and batches", *kRun = "Run directory and logs", *kTraces = "Traces",
                     *kTests = "Fault injection, for tests";

// The rows stay short by hand.
// clang-format off

void add_model(Schema& schema, BoxConfig::Model& c) {
  schema.section("model", "The model that is served.", kModel);
  schema.add({.key = "model.pack", .flag = "--model", .field = &c.pack,
              .help = "Pack to serve: a directory made by `moestro pack`",
              .value = "PACK", .everyday = true});
  schema.add({.key = "model.name", .flag = "--name", .field = &c.name,
              .help = "Name of the model in the API, and of the run directory. Default: the pack directory's name",
              .value = "NAME", .everyday = true});
  schema.add({.key = "model.aliases", .flag = "--alias", .field = &c.aliases, .list = true,
              .help = "Further names that requests may use for the model, separated by commas or as a list. The flag "
                      "may be given several times",
              .value = "NAMES"});
}

void add_arena(Schema& schema, BoxConfig::Store& c) {
  schema.add({.key = "store.dram", .flag = "--dram", .field = &c.dram, .min = 4096,
              .help = "Host memory for weights alone (the arena). KV caches and scratch memory of the workers come on "
                      "top; a sum that does not fit is refused. Weights that do not fit in the arena are read from "
                      "disk when they are needed. auto: what the pack needs, at most what is free",
              .everyday = true});
  schema.add({.key = "store.arena_dir", .flag = "--arena-dir", .field = &c.arena_dir,
              .help = "Directory for the arena's files, on a tmpfs. Default of `moestro up`: a new tmpfs where "
                      "mounting is allowed, else `/dev/shm`, else the run directory",
              .value = "DIR"});
  schema.add({.key = "store.payload_dir", .flag = "--payload-dir", .field = &c.payload_dir,
              .help = "Directory for the weights alone: a hugetlbfs, or a volume that workers mount read-only. If a "
                      "hugetlbfs has too few pages, the arena's directory is used. `memfd`: unnamed memory, which a "
                      "restarted store cannot take over. Default: the arena's directory",
              .value = "DIR"});
  schema.add({.key = "store.numa", .flag = "--numa", .field = &c.numa,
              .help = "NUMA nodes for the weights, interleaved in pieces of 2 MiB: a list such as `0` or `0,2-3`. "
                      "`off`: where the store runs, or as `numactl` says. auto: the nodes that all workers keep to, "
                      "else all nodes; the same as off under `numactl` or with one node",
              .value = "NODES"});
  schema.add({.key = "store.shares", .flag = "--shares", .field = &c.shares,
              .help = "Part of the arena that each model is guaranteed, and its maximum, dense weights included: "
                      "`big=4GiB..12GiB,small=..2GiB,chat=1GiB`. A blob that n models share counts 1/n for each. "
                      "Memory that is guaranteed to no model goes to any model that uses it",
              .value = "LIST"});
}

void add_reading(Schema& schema, BoxConfig::Store& c) {
  schema.add({.key = "store.io", .flag = "--io", .field = &c.io, .choices = {"auto", "uring", "pread"},
              .help = "How packs are read. auto: io_uring where the kernel allows it, else pread"});
  schema.add({.key = "store.warm_start", .flag = "--warm-start", .field = &c.warm_start, .choices = {"on", "off"},
              .help = "on: read what was in memory when the store was last shut down, hottest first, while serving. "
                      "off: read only what is requested"});
  schema.add({.key = "store.policy", .flag = "--policy", .field = &c.policy,
              .choices = {"interval", "lfru", "lfu", "lru", "random"},
              .help = "Which expert to evict. interval: the one with the most time between its uses. lfru: used least "
                      "often recently. lfu: least often, with a long memory. lru: not used for longest. random: for "
                      "comparison"});
  schema.add({.key = "store.read_chunk", .flag = "--read-chunk", .field = &c.read_chunk,
              .min = 64 << 10, .max = 16 << 20,
              .help = "Bytes per read, a multiple of 4KiB. auto: measured at start on the packs' files"});
  schema.add({.key = "store.read_depth", .flag = "--read-depth", .field = &c.read_depth, .min = 1, .max = 256,
              .help = "Concurrent reads per drive. auto: measured at start; up to 32 if all are of one expert"});
  schema.add({.key = "store.scrub", .flag = "--scrub", .field = &c.scrub, .min = 0,
              .help = "Bytes per second of resident weights to compare with their checksums while nothing else is "
                      "read. 0: none"});
  schema.add({.key = "store.inject_read_faults", .flag = "--inject-read-faults", .field = &c.inject_read_faults,
              .help = "For tests. Faults per thousand reads, `eio=5,short=50,flip=1,seed=7`, and extra milliseconds "
                      "per read, `delay=20`",
              .value = "LIST", .theme = kTests});
  schema.add({.key = "store.poison_freed", .flag = "--poison-freed", .field = &c.poison_freed,
              .help = "For tests. Fill freed memory with NaN to find use after free. Slow",
              .theme = kTests});
}

void add_devices(Schema& schema, BoxConfig::Workers& c) {
  schema.add({.key = "workers.count", .flag = "--workers", .field = &c.count, .min = 1, .max = 64,
              .help = "Number of worker processes",
              .everyday = true});
  schema.add({.key = "workers.device", .flag = "--device", .field = &c.device,
              .help = "What workers compute on. cpu: the CPU. cuda[:INDEX][,vram=SIZE][,dense=counted]: an NVIDIA GPU; "
                      "each worker takes at most SIZE of its memory (default: what is free); without INDEX, several "
                      "workers are spread over all GPUs; with ,dense=counted dense weights of layers that have no room "
                      "take turns there, with ,dense=N% at most that share of the layers' stays. "
                      "emulated:vram=SIZE,link=RATE[,latency=T][,compute=T]: the CPU, but each expert is first copied "
                      "to a memory of that size over a link of that speed (compute: the least time of one expert or "
                      "one attention; with ,kv=counted the KV cache takes of that memory too, and with ,dense= dense "
                      "weights, as on a GPU)",
              .value = "DEVICE", .everyday = true});
  schema.add({.key = "workers.cache", .flag = "--cache", .field = &c.cache,
              .help = "On a device with its own memory: the policy that chooses which expert to evict. auto: the "
                      "policy with the fewest recent misses",
              .value = "POLICY", .theme = kPrefetch});
  schema.add({.key = "workers.predict", .flag = "--predict", .field = &c.predict,
              .help = "The predictor that chooses which experts to read ahead from the drive and, on a device with its "
                      "own memory, to copy there early. auto: a mixture of all predictors, calibrated while it runs. "
                      "none: no prefetching",
              .value = "PREDICTOR", .theme = kPrefetch});
  schema.add({.key = "workers.cuda_graphs", .flag = "--cuda-graphs", .field = &c.cuda_graphs,
              .choices = {"on", "off"},
              .help = "On a GPU, with the layerwise schedule. on: each layer of a decode step is launched as one CUDA "
                      "graph, once a similar step has been seen. off: kernels are launched one by one, for "
                      "compute-sanitizer and profilers. The results are the same"});
  schema.add({.key = "workers.cublas", .flag = "--cublas", .field = &c.cublas,
              .choices = {"auto", "off"},
              .help = "On a GPU. auto: NVIDIA's cuBLASLt of CUDA 12 or 13, where it is installed, computes dense "
                      "products of more than 64 tokens with weights of bf16. It takes some memory of its own. off, "
                      "and with --deterministic: only Moestro's kernels compute"});
  schema.add({.key = "workers.threads", .flag = "--threads", .field = &c.threads, .min = 1, .max = 1024,
              .help = "Compute threads per worker. auto: the machine's cores divided by the number of workers",
              .everyday = true});
  schema.add({.key = "workers.pin_threads", .flag = "--pin-threads", .field = &c.pin_threads,
              .choices = {"auto", "on", "off"},
              .help = "Pin each compute thread to its own core, worker-K to the cores after those of worker-0 to "
                      "worker-(K-1). auto: only if the CPUs belong to several NUMA nodes and there is a core for each "
                      "thread. on: refuse to start with too few cores"});
  schema.add({.key = "workers.numa_node", .flag = "--numa-node", .field = &c.numa_node, .min = 0, .max = 1023,
              .help = "Run only on the CPUs of this NUMA node. KV cache and scratch memory are then on that node. "
                      "auto: all nodes; on a GPU, the node closest to it"});
}

void add_kv_cache(Schema& schema, BoxConfig::Workers& c) {
  schema.add({.key = "workers.kv_tokens", .flag = "--kv-tokens", .field = &c.kv_tokens,
              .min = 16, .max = int64_t{1} << 31,
              .help = "Tokens that each worker's KV cache holds, over all sequences. auto: 8192",
              .theme = kKvCache, .everyday = true});
  schema.add({.key = "workers.state_slots", .flag = "--state-slots", .field = &c.state_slots,
              .min = 1, .max = int64_t{1} << 20,
              .help = "For models with linear attention, which have a state of each sequence: states that each worker "
                      "has room for. Each running sequence takes one; the others keep those of prefixes. auto: as "
                      "many as take the memory of kv_tokens, at least 16",
              .theme = kKvCache});
  schema.add({.key = "workers.kv_host_tokens", .flag = "--kv-host-tokens", .field = &c.kv_host_tokens,
              .min = 0, .max = int64_t{1} << 31,
              .help = "On a GPU: tokens that each worker also keeps in host memory. KV blocks that had to leave the "
                      "GPU are copied back when needed instead of being computed again. 0: none",
              .theme = kKvCache});
  schema.add({.key = "workers.kv_home", .flag = "--kv-home", .field = &c.kv_home, .choices = {"device", "host"},
              .help = "Where the KV cache lies between its uses. host: in host memory, so that it can be larger than "
                      "the device's; what a step uses crosses the link. For batches of many sequences, on a GPU "
                      "or an emulated device; on the CPU both are the same",
              .theme = kKvCache});
  schema.add({.key = "workers.kv_resident_tokens", .flag = "--kv-resident-tokens", .field = &c.kv_resident_tokens,
              .min = 0, .max = int64_t{1} << 31,
              .help = "With kv_home host: of kv_tokens, those that stay on the device and never cross the link",
              .theme = kKvCache});
  schema.add({.key = "workers.kv_ring_tokens", .flag = "--kv-ring-tokens", .field = &c.kv_ring_tokens,
              .min = 48, .max = int64_t{1} << 31,
              .help = "With kv_home host: the device's room for KV that is in use, in tokens of a layer of the model; "
                      "the KV of three micro-batches is there at a time. auto: 8192, or what three of the longest "
                      "sequences need",
              .theme = kKvCache});
  schema.add({.key = "workers.kv_dtype", .flag = "--kv-dtype", .field = &c.kv_dtype,
              .choices = {"f32", "bf16", "f16", "int8"},
              .help = "Format of keys and values. f32 rounds nothing, so answers are the model's own. bf16 and f16 "
                      "(nothing above 65504) take half the memory, int8 (one scale per token and head) about a quarter",
              .theme = kKvCache});
  schema.add({.key = "workers.kv_sinks", .flag = "--kv-sinks", .field = &c.kv_sinks,
              .min = 0, .max = int64_t{1} << 24,
              .help = "With kv_window: tokens from the beginning of its sequence that each token also sees (attention "
                      "sinks). 4 is usual",
              .theme = kKvCache});
  schema.add({.key = "workers.kv_window", .flag = "--kv-window", .field = &c.kv_window,
              .min = 0, .max = int64_t{1} << 24,
              .help = "Tokens that each token sees: itself and those before it. Sequences may then be longer than the "
                      "model's context. 0: all",
              .theme = kKvCache});
  schema.add({.key = "workers.context", .flag = "--context", .field = &c.context, .min = 16, .max = int64_t{1} << 24,
              .help = "Longest sequence, in tokens. auto: the model's limit, which also bounds larger values",
              .theme = kKvCache});
}

/// Every format that a pack's experts may have, and none.
std::vector<std::string> precisions() {
  std::vector<std::string> names = {""};
  for (size_t i = 0; i < kDTypes; ++i) names.emplace_back(dtype_name(static_cast<DType>(i)));
  return names;
}

void add_steps(Schema& schema, BoxConfig::Workers& c) {
  schema.add({.key = "workers.schedule", .flag = "--schedule", .field = &c.schedule,
              .choices = {"auto", "layerwise", "expert-pipeline", "cgo"},
              .help = "The order of a step's tasks. layerwise: layer after layer for all rows, for low latency. "
                      "expert-pipeline: micro-batches go through each layer together and share its experts, while KV "
                      "crosses the link; for batches of many sequences. cgo: the host attends to the sequences that "
                      "decode, while the device computes the rest (devices with kv_home host). auto: "
                      "what the planner chooses for a batch that fills kv_tokens, if one worker has no room for all "
                      "experts and `moestro plan` has measured this machine's rates for the pack (`moestro up` alone "
                      "asks it); else expert-pipeline where kv_home is host, and layerwise",
              .theme = kServing});
  schema.add({.key = "workers.micro_batches", .flag = "--micro-batches", .field = &c.micro_batches, .min = 1, .max = 64,
              .help = "With expert-pipeline and cgo: into how many micro-batches a step is cut, of about as many "
                      "tokens each. auto: 8. Fewer in steps that have less than 16 tokens for each. More where the KV "
                      "of one would not fit the device",
              .theme = kServing});
  schema.add({.key = "workers.micro_batch_rows", .flag = "--micro-batch-rows", .field = &c.micro_batch_rows,
              .min = 1, .max = 1 << 20,
              .help = "With expert-pipeline and cgo: the most tokens of a micro-batch, unless one sequence has more. "
                      "auto: no limit",
              .theme = kServing});
  schema.add({.key = "workers.step_buffers", .flag = "--step-buffers", .field = &c.step_buffers,
              .min = 1, .max = 1 << 20,
              .help = "Tokens of a step that workers have buffers for. auto: as --step-tokens; if that is auto too, "
                      "512, or up to 4096 where experts do not fit and larger steps are forecast to pay",
              .theme = kServing});
  schema.add({.key = "workers.store_wait", .flag = "--store-wait", .field = &c.store_wait,
              .min = 0, .max = 24 * 3600'000,
              .help = "How long a missing expert waits for the restart of a store that was killed. Then the requests "
                      "that need it fail"});
  schema.add({.key = "workers.reserve", .flag = "--reserve", .field = &c.reserve, .min = 1, .max = 1 << 20,
              .help = "Experts that each worker may always hold in use at once. auto: 1"});
  schema.add({.key = "workers.precision", .flag = "--precision", .field = &c.precision,
              .choices = precisions(),
              .help = "Expert precision to use, of those in the pack. Default: the pack's first",
              .theme = kModel});
  schema.add({.key = "workers.mixed", .flag = "--mixed", .field = &c.mixed,
              .help = "Changes outputs. LOW[,t1=SCORE][,t2=SCORE][,share=SHARE], as in `int4,t1=0.6,t2=1`: an expert "
                      "that is missing and matters little for a token is served by its copy in the precision LOW, "
                      "which the pack must have too. A token's experts are sorted by weight; the score of one is the "
                      "sum of the normalised weights before it. Up to t1 the full copy is waited for, up to t2 (1) the "
                      "low one will do, above it the expert is left out. share: part of a device's memory for low "
                      "copies (0.03). Answers say how much was low. Requests turn it off with `moestro.mixed`. Cannot "
                      "be combined with `workers.deterministic`",
              .value = "LOW", .theme = kPrefetch});
  schema.add({.key = "workers.mixed_max_share", .flag = "--mixed-max-share", .field = &c.mixed_max_share,
              .min = 0, .max = 1,
              .help = "With --mixed: the largest share of a request's choices (tokens x experts) that low copies may "
                      "serve, those left out included. Above it, full copies are waited for. Requests may ask for "
                      "less with `moestro.mixed_max_share`. auto: no limit",
              .theme = kPrefetch});
  schema.add({.key = "workers.deterministic", .flag = "--deterministic", .field = &c.deterministic,
              .help = "Bitwise the same results whatever else is in the batch: activations stay f32 and every sum has "
                      "one order. Without it, products may round activations to bf16 or 8 bits, and small batches may "
                      "be summed in another order, which is faster",
              .theme = kModel, .everyday = true});
  schema.add({.key = "workers.capacity_factor", .flag = "--capacity-factor", .field = &c.capacity_factor,
              .min = 0, .max = 1 << 20,
              .help = "For Switch-style models: an expert takes at most this many times its even share of a step's "
                      "tokens, ceil(factor * tokens * top_k / experts). Other tokens skip it. auto: no token is "
                      "dropped. Cannot be combined with `workers.deterministic`",
              .theme = kModel});
  schema.add({.key = "workers.trace", .flag = "--trace", .field = &c.trace,
              .help = "Write the experts that each token is routed to (JSON Lines), for `moestro replay`. With several "
                      "workers, each writes its own file, with the worker's name inserted",
              .value = "FILE", .theme = kTraces, .everyday = true});
  schema.add({.key = "workers.timeline", .flag = "--timeline", .field = &c.timeline,
              .help = "Write when each task ran and what steps waited for, in Chrome trace format, for `moestro "
                      "timeline` and Perfetto. Several workers: as for the trace. An earlier file becomes FILE.old",
              .value = "FILE", .theme = kTraces});
}

void add_serving(Schema& schema, BoxConfig::Orchestrator& c) {
  schema.add({.key = "orchestrator.http", .flag = "--http", .field = &c.http,
              .help = "Address to serve on: HOST:PORT, or PORT for 127.0.0.1:PORT. 0.0.0.0 is every address of this "
                      "machine. Port 0: a free one",
              .value = "ADDRESS", .everyday = true});
  schema.add({.key = "orchestrator.api_keys", .flag = "--api-keys", .field = &c.api_keys,
              .help = "File of API keys as hashes, one per line: `sha256:HEX NAME [concurrency=N] [project=NAME] "
                      "[admin]`. Default: no key is needed",
              .value = "FILE", .everyday = true});
  schema.add({.key = "orchestrator.tls_cert", .flag = "--tls-cert", .field = &c.tls_cert,
              .help = "PEM file of the server's certificate, followed by its chain. Together with tls_key: serve "
                      "https. A replaced file is read again. Default: http",
              .value = "FILE", .everyday = true});
  schema.add({.key = "orchestrator.tls_key", .flag = "--tls-key", .field = &c.tls_key,
              .help = "PEM file of the certificate's private key, without a passphrase",
              .value = "FILE", .everyday = true});
  schema.add({.key = "orchestrator.cors", .flag = "--cors", .field = &c.cors,
              .help = "Origins whose pages may call the API from a browser, separated by commas, or *. Default: none",
              .value = "LIST"});
  schema.add({.key = "orchestrator.lenient", .flag = "--lenient", .field = &c.lenient,
              .help = "Ignore unknown fields of requests and name them in the header X-Moestro-Ignored. "
                      "Otherwise they are refused by name"});
  schema.add({.key = "orchestrator.mixed_warn_share", .flag = "--mixed-warn-share", .field = &c.mixed_warn_share,
              .min = 0, .max = 1,
              .help = "With --mixed: if low copies served more than this share of an answer's choices (tokens x "
                      "experts), those left out included, the answer has the header X-Moestro-Low-Share with the "
                      "share. Streams have it in their usage only. auto: no header"});
  schema.add({.key = "orchestrator.reader_wait", .flag = "--reader-wait", .field = &c.reader_wait,
              .min = 1000, .max = 24 * 3600'000,
              .help = "A client that reads nothing of its answer for this long is disconnected"});
}

void add_scheduling(Schema& schema, BoxConfig::Orchestrator& c) {
  schema.add({.key = "orchestrator.step_tokens", .flag = "--step-tokens", .field = &c.step_tokens,
              .min = 1, .max = 1 << 20,
              .help = "Most tokens of one step. Smaller values answer running requests sooner, larger ones read "
                      "prompts faster. auto: 512, and more where workers have the buffers (--step-buffers) and steps "
                      "are measured to gain by it",
              .theme = kScheduling});
  schema.add({.key = "orchestrator.steps_in_flight", .flag = "--steps-in-flight", .field = &c.steps_in_flight,
              .min = 1, .max = 2,
              .help = "Steps that each worker has at once. 2: the next step is sent before the result of the previous "
                      "one arrives, so workers do not wait for the orchestrator. 1: one at a time",
              .theme = kScheduling});
  schema.add({.key = "orchestrator.tpot_target", .flag = "--tpot-target", .field = &c.tpot_target,
              .min = 0, .max = 600'000,
              .help = "Target time per output token of running requests, such as `80ms`. When measured steps put it "
                      "at risk, prompts are read in smaller pieces and fewer interactive requests run at once. Only "
                      "those are limited: lines of batches run as before, and take turns in what the target leaves "
                      "of each step while an interactive request is answered. 0ms: no target; only step_tokens limits "
                      "a step",
              .theme = kScheduling});
  schema.add({.key = "orchestrator.overtaking", .flag = "--no-overtaking", .field = &c.overtaking,
              .help = "Turns off overtaking (in a file: false). With overtaking, interactive requests do not wait for "
                      "steps of batches that last longer than tpot_target: they are computed between two of a step's "
                      "layers. CPUs and emulated devices do this; workers have buffers for 128 more tokens",
              .theme = kScheduling});
  schema.add({.key = "orchestrator.interactive_weight", .flag = "--interactive-weight", .field = &c.interactive_weight,
              .min = 1, .max = 1000,
              .help = "Tokens and places that interactive requests get for each one of batches, while both want more "
                      "than there is",
              .theme = kScheduling});
  schema.add({.key = "orchestrator.batch_aging", .flag = "--batch-aging", .field = &c.batch_aging,
              .min = 0, .max = 24 * 3600'000,
              .help = "A batch's line that makes no progress for this long counts as an interactive request",
              .theme = kScheduling});
  schema.add({.key = "orchestrator.prefix_cache", .flag = "--no-prefix-cache", .field = &c.prefix_cache,
              .help = "Turns off the prefix cache (in a file: false). With the cache, requests with the same beginning "
                      "share its keys and values",
              .theme = kKvCache});
  schema.add({.key = "orchestrator.share_prefixes", .flag = "--share-prefixes", .field = &c.share_prefixes,
              .help = "API keys of different projects share prefixes too. They can then tell from times and "
                      "`cached_tokens` what others have sent",
              .theme = kKvCache});
  schema.add({.key = "orchestrator.queue_max", .flag = "--queue-max", .field = &c.queue_max, .min = 1, .max = 1 << 20,
              .help = "Sequences that may wait or run at once; a request with several choices has one for each. More "
                      "are refused with 429. auto: 4096",
              .theme = kScheduling});
  schema.add({.key = "orchestrator.worker_wait", .flag = "--worker-wait", .field = &c.worker_wait,
              .min = 1000, .max = 24 * 3600'000,
              .help = "How long requests wait while there is no worker. Then they fail with 503",
              .theme = kScheduling});
}

void add_batches(Schema& schema, BoxConfig::Orchestrator& c) {
  schema.add({.key = "orchestrator.state", .flag = "--state", .field = &c.state,
              .help = "Where files and batches are kept. `sqlite:PATH`: a file, and the folder PATH.files next to it. "
                      "`redis://HOST:PORT/DB`: a Redis that several orchestrators share (docs/scaling-out.md). "
                      "Default: `RUN_DIR/state/batches.db`; of `moestro up` without `--run-dir`, "
                      "`$XDG_STATE_HOME/moestro/NAME/batches.db` (`~/.local/state`)",
              .value = "STATE", .theme = kBatches, .everyday = true});
  schema.add({.key = "orchestrator.file_max", .flag = "--file-max", .field = &c.file_max,
              .min = 1, .max = int64_t{64} << 30,
              .help = "Largest file that may be uploaded",
              .theme = kBatches});
  schema.add({.key = "orchestrator.responses_kept", .flag = "--responses-kept", .field = &c.responses_kept,
              .min = 0, .max = int64_t{64} << 30,
              .help = "Bytes of responses of `/v1/responses` to keep, each for 30 days; the oldest are removed first. "
                      "0: none are kept",
              .theme = kBatches});
  schema.add({.key = "orchestrator.batch_lines", .flag = "--batch-lines", .field = &c.batch_lines,
              .min = 1, .max = 4096,
              .help = "Lines of batches that are in the queue or run at once. auto: a quarter more than the workers "
                      "can have in a step, so that each line that ends is replaced at once; at least 64, and at most "
                      "half of queue_max",
              .theme = kBatches});
  schema.add({.key = "orchestrator.line_lease", .flag = "--line-lease", .field = &c.line_lease,
              .min = 500, .max = 3'600'000,
              .help = "With Redis: an orchestrator that says nothing for this long counts as dead, and others get its "
                      "lines",
              .theme = kBatches});
}

void add_history(Schema& schema, BoxConfig::History& c) {
  schema.section("history", "What past requests have used. The `eamc` and `auto` predictors learn from it.", kPrefetch);
  schema.add({.key = "history.capacity", .flag = "--history-capacity", .field = &c.capacity, .min = 0, .max = 65536,
              .help = "Past requests whose activations are kept, prompts and answers separately. When it is full, a "
                      "new one replaces the most similar. 0: none"});
  schema.add({.key = "history.checkpoint", .flag = "--history-checkpoint", .field = &c.checkpoint,
              .min = 1000, .max = 24 * 3600'000,
              .help = "Time between two checkpoints of the history in the state, while it changes. Another one is "
                      "written at the end"});
}

void add_run(Schema& schema, BoxConfig::Run& c) {
  schema.section("run", "The run itself.", kRun);
  schema.add({.key = "run.dir", .flag = "--run-dir", .field = &c.dir,
              .help = "Directory for sockets, locks and logs. Only its owner and the members of --group may enter it. "
                      "Default of `moestro up`: `$XDG_RUNTIME_DIR/moestro/NAME` or `/tmp/moestro-UID/NAME`",
              .value = "DIR", .everyday = true});
  schema.add({.key = "run.group", .flag = "--group", .field = &c.group,
              .help = "Group, by name or number, whose members may also use sockets and arena: for programs that run "
                      "as different users, as in containers. Default: this user only",
              .value = "GROUP"});
  schema.add({.key = "run.log_level", .flag = "--log-level", .field = &c.log_level,
              .choices = {"trace", "debug", "info", "warn", "error", "off"},
              .help = "Log level of the three programs"});
  schema.add({.key = "run.log_format", .flag = "--log-format", .field = &c.log_format, .choices = {"text", "json"},
              .help = "Log format. text: lines for people. json: one object per line, with `time`, `level`, `program`, "
                      "`message` and `request_id`"});
  schema.add({.key = "run.fault_points", .flag = "--fault-points", .field = &c.fault_points,
              .help = "For tests. Points at which store and workers kill or stop themselves, "
                      "`loading=kill:3,leased=stop:1`",
              .value = "LIST", .theme = kTests});
  schema.add({.key = "run.drain", .flag = "--drain", .field = &c.drain, .min = 0, .max = 24 * 3600'000,
              .help = "How long requests in flight may take to end after Ctrl-C. Then the programs are killed"});
}

// clang-format on

}  // namespace

int64_t step_buffers(const BoxConfig& c) {
  return c.workers.step_buffers.value_or(c.orchestrator.step_tokens.value_or(kUsualStepTokens));
}

int64_t overtaking_tokens(const BoxConfig& c) {
  const bool overtakes = c.orchestrator.overtaking && c.orchestrator.tpot_target.count() > 0;
  return overtakes ? std::min(kOvertakingTokens, step_buffers(c)) : 0;
}

const std::vector<std::string>& box_themes() {
  static const std::vector<std::string> kThemes{kModel,   kWorkers,    kKvCache, kStore,  kPrefetch, kServing,
                                                kBatches, kScheduling, kRun,     kTraces, kTests};
  return kThemes;
}

Schema box_schema(BoxConfig& config) {
  Schema schema;
  add_model(schema, config.model);
  schema.section("store", "The expert store: all weights, in memory and on disk.", kStore);
  add_arena(schema, config.store);
  add_reading(schema, config.store);
  schema.section("workers", "The processes that compute.", kWorkers);
  add_devices(schema, config.workers);
  add_kv_cache(schema, config.workers);
  add_steps(schema, config.workers);
  schema.section("orchestrator", "The HTTP interface and the scheduler.", kServing);
  add_serving(schema, config.orchestrator);
  add_scheduling(schema, config.orchestrator);
  add_batches(schema, config.orchestrator);
  add_history(schema, config.history);
  add_run(schema, config.run);
  return schema;
}

}  // namespace moestro::config
