#include "common/exit_code.h"

namespace moestro {

int exit_code_of(const Status& end) {
  switch (end.code()) {
    case Code::kOk: return 0;
    case Code::kInvalidArgument:
    case Code::kNotFound:
    case Code::kUnsupported:
    case Code::kCorrupt: return kExitCannotMend;
    case Code::kIo:
    case Code::kExhausted:
    case Code::kUnavailable:
    case Code::kCancelled:
    case Code::kInternal: return kExitMayMend;
  }
  return kExitMayMend;
}

}  // namespace moestro
